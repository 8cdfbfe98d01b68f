package lifecycle

import (
	"maps"
	"slices"
)

// Entry is what compaction needs to know of a record: a record without its weight.
type Entry struct {
	Seq, Intent, Request uint64
	Op                   Op
	Phase                Phase
	Exec                 string
	From, To             State
}

// Entry returns the record's entry.
func (r Record) Entry() Entry {
	return Entry{r.Seq, r.Intent, r.Request, r.Op, r.Phase, r.Exec, r.From, r.To}
}

// Garbage lists, in order, the records of a journal that can be removed once the requests below forgotten
// are answered for good, and how many execs are gone with them (to be added to Base.DeletedExecs). What is left
// folds, on the new Base, to the same container. Records are removed whole operations at a time:
//
//   - everything of an exec that was deleted;
//   - operations that failed or were undone, and kill, update and checkpoint;
//   - close-io but the first one of each process, oom but the last;
//   - a pause and the resume that ended it, where nothing in between is kept.
//
// An operation whose answer may be asked for again stays, and with it the exec it belongs to. At most limit
// records are listed; what is left over is found the next time.
func Garbage(entries []Entry, forgotten uint64, limit int) (seqs []uint64, deletedExecs uint64) {
	h := heap{forgotten: forgotten, room: limit, intents: map[uint64]*group{}, lives: map[string][]*group{}}
	for _, e := range entries {
		h.add(e)
	}
	for _, exec := range slices.Sorted(maps.Keys(h.lives)) { // processes that are still there
		h.sweep(h.lives[exec])
	}
	for _, e := range entries {
		if h.intents[root(e)].garbage {
			seqs = append(seqs, e.Seq)
		}
	}
	return seqs, h.deleted
}

// group is the records of one operation.
type group struct {
	op      Op
	last    Entry // the outcome, once there is one
	size    int   // records
	closed  bool
	pinned  bool // its answer is not forgotten
	garbage bool
}

type heap struct {
	forgotten uint64
	room      int                 // records that may still be marked
	intents   map[uint64]*group   // by the sequence of the first record
	lives     map[string][]*group // of the processes there are, in the order they were begun
	deleted   uint64
}

// root is the sequence of the first record of the entry's operation.
func root(e Entry) uint64 {
	if e.Intent != 0 {
		return e.Intent
	}
	return e.Seq
}

func (h *heap) add(e Entry) {
	g := h.intents[root(e)]
	if g == nil {
		g = &group{op: e.Op}
		h.intents[root(e)] = g
		h.lives[e.Exec] = append(h.lives[e.Exec], g)
	}
	g.last = e
	g.size++
	g.closed = e.Phase != Intent && e.Phase != Launched
	g.pinned = (e.Phase == Done || e.Phase == Failed) && e.Request != 0 && e.Request >= h.forgotten
	if e.Exec != "" && e.Op == OpDelete && e.Phase == Done {
		h.bury(e.Exec)
	}
}

// bury ends the life of a deleted exec: all of it goes, or, while an answer is still owed, what has left no
// trace.
func (h *heap) bury(exec string) {
	life := h.lives[exec]
	delete(h.lives, exec)
	if !slices.ContainsFunc(life, func(g *group) bool { return g.pinned }) && h.mark(life...) {
		h.deleted++
		return
	}
	h.sweep(life)
}

// mark makes groups garbage, all or, where there is no room, none.
func (h *heap) mark(groups ...*group) bool {
	size := 0
	for _, g := range groups {
		size += g.size
	}
	if size > h.room {
		return false
	}
	h.room -= size
	for _, g := range groups {
		g.garbage = true
	}
	return true
}

// sweep marks what has left no trace in the state of the process.
func (h *heap) sweep(life []*group) {
	counts := map[Op]*group{} // the one of each kind that counts
	for _, g := range life {
		switch {
		case !g.closed || g.last.Phase == Failed || g.last.Phase == Undone:
		case g.op == OpOOM || counts[g.op] == nil:
			counts[g.op] = g
		}
	}
	for _, g := range life {
		if g.closed && !g.pinned && g.traceless(counts[g.op] == g) {
			h.mark(g)
		}
	}
	h.sweepPauses(life)
}

// traceless says whether the fold would be the same without the operation.
func (g *group) traceless(counts bool) bool {
	if g.last.Phase == Failed || g.last.Phase == Undone {
		return true
	}
	switch g.op {
	case OpKill, OpUpdate, OpCheckpoint:
		return true
	case OpPause, OpResume:
		return g.last.From == g.last.To
	case OpCloseIO, OpOOM:
		return !counts
	case OpCreate, OpStart, OpExec, OpDelete, OpExit:
	}
	return false
}

// sweepPauses marks a pause with its resume where every record of init in between goes as well: one that
// stays may be legal only in the state it was written in.
func (h *heap) sweepPauses(life []*group) {
	var pause *group
	for _, g := range life {
		if g.garbage || !g.closed || g.last.From == g.last.To {
			continue
		}
		if g.op == OpResume && pause != nil && !pause.pinned && !g.pinned && undisturbed(life, pause, g) {
			h.mark(pause, g)
		}
		if pause = nil; g.op == OpPause {
			pause = g
		}
	}
}

// undisturbed says whether nothing of the process that stays was written while it was paused.
func undisturbed(life []*group, pause, resume *group) bool {
	for _, g := range life {
		if g == pause || g == resume || g.garbage {
			continue
		}
		if g.last.Seq > pause.last.Seq && g.begun() < resume.last.Seq {
			return false
		}
	}
	return true
}

// begun is the sequence of the first record of the operation.
func (g *group) begun() uint64 { return root(g.last) }
