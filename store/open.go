package store

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

// Open opens a journal to write it. The path is a bundle's perdure.db, or /proc/self/fd/N of a descriptor
// from the keeper's store. It waits up to timeout for the lock (0: not at all) and returns, with the path in
// it, os.ErrNotExist, ErrLocked, ErrDamaged, ErrForeign, ErrNewerSchema or the system's error. It checks
// everything [Journal.Check] does.
func Open(path string, timeout time.Duration) (*Journal, error) {
	j, err := open(path, timeout)
	if err != nil {
		return nil, describe("open", path, err)
	}
	return j, nil
}

// Read reads a whole journal without changing it, for tools and for the delete command. It fails as Open
// does; while a worker has the journal, with ErrLocked.
func Read(path string, timeout time.Duration) (*Contents, error) {
	c, err := read(path, timeout)
	if err != nil {
		return nil, describe("read", path, err)
	}
	return c, nil
}

func open(path string, timeout time.Duration) (*Journal, error) {
	f, err := openLocked(path, true, timeout)
	if err != nil {
		return nil, err
	}
	db, c, err := openDB(f, true)
	if err != nil {
		return nil, err
	}
	return newJournal(db, f, c), nil
}

func read(path string, timeout time.Duration) (*Contents, error) {
	f, err := openLocked(path, false, timeout)
	if err != nil {
		return nil, err
	}
	db, c, err := openDB(f, false)
	if err != nil {
		return nil, err
	}
	return c, closeDB(db, f, false)
}

func newJournal(db *bbolt.DB, f *os.File, c *Contents) *Journal {
	j := &Journal{meta: c.Meta, db: db, file: f, base: c.base}
	j.compact.index(c.Records)
	j.state.Store(c.State)
	return j
}

// describe says which file an error is about, and what to do.
func describe(what, path string, err error) error {
	remedy := ""
	switch {
	case errors.Is(err, ErrDamaged):
		remedy = "; set it aside and recover the container from the runtime"
	case errors.Is(err, ErrNewerSchema):
		remedy = "; install that version again"
	case errors.Is(err, ErrLocked):
		remedy = "; ask its worker"
	}
	return fmt.Errorf("%s journal %s: %w%s", what, path, err, remedy)
}

// openDB hands a locked file to bbolt, once its pages are known to be sound, and loads it. On failure the file
// is unlocked and closed.
func openDB(f *os.File, write bool) (db *bbolt.DB, c *Contents, err error) {
	if err := verify(f); err != nil {
		return nil, nil, errors.Join(err, release(f))
	}
	if db, err = openBolt(f, write); err != nil {
		return nil, nil, err
	}
	var broken bool
	if fault := guard(func() {
		err = db.View(func(tx *bbolt.Tx) error {
			c, err = load(tx)
			return err
		})
	}); fault != nil {
		err, broken = fault, true
	}
	if err != nil {
		return nil, nil, errors.Join(err, closeDB(db, f, broken))
	}
	return db, c, nil
}

// openBolt opens a file that is locked already. A panic of bbolt leaves the lock: it is released here.
//
// Options. bbolt's own share of an open journal is 2 KiB of heap, with either kind of free list, with 70 execs
// (380 KiB of file) or none; the fold and its index take another 2.6 KiB per live exec (BenchmarkOpenMemory).
//
//   - NoSync, NoGrowSync: see the failure model. Without the latter bbolt syncs each time the file grows, and
//     the file grows by doubling instead of by the page.
//   - The free list is written (NoFreelistSync false): it costs one page per commit, but a file without one is
//     scanned at Open in a goroutine of bbolt's, where a panic cannot be caught.
//   - The array free list takes the lowest page that fits, which keeps the file small; it is slow only with
//     far more pages than a journal has.
//   - InitialMmapSize 0: the mapping is the file's size, 32 KiB at least, and it is the page cache's memory.
//   - PageSize 0: the system's, so that a page is written to the page cache in one piece.
//   - NoStatistics: nobody reads them.
func openBolt(f *os.File, write bool) (db *bbolt.DB, err error) {
	opts := &bbolt.Options{
		Timeout:      time.Nanosecond, // the lock is ours already
		ReadOnly:     !write,
		NoSync:       true,
		NoGrowSync:   true,
		FreelistType: bbolt.FreelistArrayType,
		NoStatistics: true,
		OpenFile:     func(string, int, os.FileMode) (*os.File, error) { return f, nil },
	}
	if fault := guard(func() { db, err = bbolt.Open(f.Name(), 0o600, opts) }); fault != nil {
		return nil, errors.Join(fault, release(f))
	}
	switch { // bbolt has closed the file
	case short(err):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return db, nil
}

// short says that the system had not enough of something, which may pass and is no fault of the file.
func short(err error) bool {
	for _, errno := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// closeDB closes the database, or of one that is broken only the file: its locks may be held for ever.
func closeDB(db *bbolt.DB, f *os.File, broken bool) (err error) {
	if broken {
		return release(f)
	}
	if fault := guard(func() { err = db.Close() }); fault != nil {
		return errors.Join(fault, release(f))
	}
	return err
}

// emptyContents is what a journal that was just created has in it.
func emptyContents(m Meta) *Contents { return &Contents{Meta: m, State: &lifecycle.Container{}} }
