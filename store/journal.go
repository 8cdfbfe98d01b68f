package store

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

// Journal is the open journal of one container. It holds the file's lock until Close. All methods are safe
// for concurrent use; none keeps the caller waiting for anything but other calls' transactions.
type Journal struct {
	meta   Meta
	state  atomic.Pointer[lifecycle.Container]
	oldest atomic.Uint64 // requests below it will not be asked for again

	mu      sync.Mutex
	file    *os.File  // db's own; not nil
	db      *bbolt.DB // nil once closed
	broken  error     // set by a fault: nothing is believed any more
	base    lifecycle.Base
	compact compaction
}

// Meta returns what was given to Create.
func (j *Journal) Meta() Meta { return j.meta }

// State returns the container as it was committed last.
func (j *Journal) State() *lifecycle.Container { return j.state.Load() }

// Forget says that requests below oldest have been answered for good and will not be replayed. Their answers are
// removed by a later Commit, when it compacts.
func (j *Journal) Forget(oldest uint64) {
	for {
		old := j.oldest.Load()
		if oldest <= old || j.oldest.CompareAndSwap(old, oldest) {
			return
		}
	}
}

// Commit appends records and outbox rows and brings the state up to date, in one transaction. It returns the
// records as written (see [lifecycle.Container.Stamp]) and the new state, which State returns from then on.
// When it fails nothing has happened, on disk or in memory. Errors are those of [lifecycle.Container.Apply],
// ErrClosed, ErrDamaged, or the system's (ENOSPC).
func (j *Journal) Commit(records []lifecycle.Record, events []Event) ([]lifecycle.Record, *lifecycle.Container, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.State()
	after := before
	stamped := make([]lifecycle.Record, len(records))
	for i, r := range records {
		r = after.Stamp(r)
		next, err := after.Apply(r)
		if err != nil {
			return nil, nil, j.wrap("commit to", err)
		}
		stamped[i], after = r, next
	}
	c := change{before: before, after: after, records: stamped, events: events, base: j.base}
	j.compact.plan(&c, j.oldest.Load())
	if err := j.update(c.write); err != nil {
		return nil, nil, j.wrap("commit to", err)
	}
	j.base = c.base
	j.compact.committed(&c)
	j.state.Store(c.after)
	return stamped, c.after, nil
}

// Outbox returns the rows that were not acknowledged, in the order they have to be sent.
func (j *Journal) Outbox() (rows []Row, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err = j.view(func(tx *bbolt.Tx) error {
		rows, err = loadOutbox(tx.Bucket(bucketOutbox))
		return err
	})
	return rows, j.wrap("read the outbox of", err)
}

// Acknowledge removes rows that were delivered. Rows that are not there are no error.
func (j *Journal) Acknowledge(seq ...uint64) error {
	if len(seq) == 0 {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.wrap("acknowledge events of", j.update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketOutbox)
		for _, n := range seq {
			if err := b.Delete(number(n)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Records returns the journal as it is in the file, compacted.
func (j *Journal) Records() ([]lifecycle.Record, error) {
	c, err := j.Contents()
	if err != nil {
		return nil, err
	}
	return c.Records, nil
}

// Contents returns everything in the file, checked: for Timeline beside a live worker.
func (j *Journal) Contents() (c *Contents, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err = j.view(func(tx *bbolt.Tx) error {
		c, err = load(tx)
		return err
	})
	return c, j.wrap("read", err)
}

// Check reads the whole file and says, with ErrDamaged, where state and journal do not agree with each other
// or with what is in memory. Open has done it already; tests do it in their clean-up.
func (j *Journal) Check() error {
	c, err := j.Contents()
	if err != nil {
		return err
	}
	if have := j.State(); !sameContainer(have, c.State) {
		return j.wrap("check", fmt.Errorf("%w: memory and file differ: %+v, %+v", ErrDamaged, have, c.State))
	}
	return nil
}

// File opens the journal's file again, for the keeper's descriptor store: by it the journal can be opened
// (as /proc/self/fd/N) when the bundle is gone. The caller closes it. It is another open file description
// (O_PATH), so keeping it does not keep the lock.
func (j *Journal) File() (*os.File, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.db == nil {
		return nil, j.wrap("open the file of", ErrClosed)
	}
	f, err := openPath(j.file)
	return f, j.wrap("open the file of", err)
}

// Close releases the lock. State stays readable. Closing twice is no error.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.db == nil {
		return nil
	}
	err := closeDB(j.db, j.file, j.broken != nil)
	j.db = nil
	return j.wrap("close", err)
}

func (j *Journal) update(f func(*bbolt.Tx) error) error { return j.guarded(f, (*bbolt.DB).Update) }
func (j *Journal) view(f func(*bbolt.Tx) error) error   { return j.guarded(f, (*bbolt.DB).View) }

// guarded runs a transaction. A fault inside bbolt leaves its locks and caches in doubt: the journal then
// refuses everything.
func (j *Journal) guarded(f func(*bbolt.Tx) error, in func(*bbolt.DB, func(*bbolt.Tx) error) error) error {
	switch {
	case j.broken != nil:
		return j.broken
	case j.db == nil:
		return ErrClosed
	}
	var err error
	if fault := guard(func() { err = in(j.db, f) }); fault != nil {
		j.broken = fault
		return fault
	}
	return err
}

// wrap says which container an error is about.
func (j *Journal) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s the journal of container %s: %w", what, j.meta.ID, err)
}
