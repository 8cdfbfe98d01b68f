package store

import "perdure/store/lifecycle"

// Compaction is done inside Commit, and only once as much was written as makes it worth while: then it costs
// the walk over an index in memory and some hundred deletions. The index is at most as long as what the
// live processes need plus what has been written since.
const (
	compactRecords = 128       // records since the last compaction
	compactBytes   = 128 << 10 // or bytes of them
	compactLimit   = 1024      // records removed at once; more have piled up only behind an old unanswered request
)

// compaction is the index of the journal.
type compaction struct {
	entries []lifecycle.Entry
	records int // since the last compaction
	bytes   int
}

// index fills it from a journal that was read. Then the next Commit compacts, if there is a lot.
func (x *compaction) index(records []lifecycle.Record) {
	x.entries = make([]lifecycle.Entry, len(records))
	for i, r := range records {
		x.entries[i] = r.Entry()
	}
	x.records = len(records)
}

// due says whether enough was written since the last time.
func (x *compaction) due() bool {
	return x.records >= max(compactRecords, len(x.entries)/2) || x.bytes >= compactBytes
}

// plan adds the compaction to a change when it is due.
func (x *compaction) plan(c *change, oldest uint64) {
	if !x.due() {
		return
	}
	c.compacts = true
	c.after = c.after.Forget(oldest)
	var execs uint64
	c.garbage, execs = lifecycle.Garbage(x.entries, c.after.Forgotten, compactLimit)
	c.base.DeletedExecs += execs
	c.base.Forgotten = c.after.Forgotten
}

// committed brings the index up to date with a change that is in the file.
func (x *compaction) committed(c *change) {
	if c.compacts {
		x.remove(c.garbage)
		if len(c.garbage) < compactLimit/2 { // else there is more, and the next Commit goes on
			x.records, x.bytes = 0, 0
		}
	}
	for _, r := range c.records {
		x.entries = append(x.entries, r.Entry())
	}
	x.records += len(c.records)
	x.bytes += c.size
}

// remove drops entries; both lists are sorted by sequence.
func (x *compaction) remove(garbage []uint64) {
	kept := x.entries[:0]
	for _, e := range x.entries {
		if len(garbage) > 0 && garbage[0] == e.Seq {
			garbage = garbage[1:]
			continue
		}
		kept = append(kept, e)
	}
	clear(x.entries[len(kept):])
	x.entries = kept
}
