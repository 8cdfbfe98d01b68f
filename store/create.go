package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

// Name is the name of a journal in its bundle.
const Name = "perdure.db"

// Create makes the journal of a new container and returns it locked and open. It appears in the bundle under
// its name complete with its Meta, or not at all. A journal without records, and one of another boot, is
// replaced; any other is ErrExists. ErrLocked, ErrDamaged and ErrNewerSchema are about the file that is there.
func Create(dir string, m Meta) (*Journal, error) {
	path := filepath.Join(dir, Name)
	j, err := create(path, m)
	if err != nil {
		return nil, describe("create", path, err)
	}
	return j, nil
}

// create holds back from nothing but a journal that counts. The lock of the old journal is held until the new one is in its place, so of two that
// replace it one is second; of two that find none, appear lets one pass.
func create(path string, m Meta) (j *Journal, err error) {
	old, err := open(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return build(path, m, appear)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, old.Close()) }()
	if old.State().Last > 0 && old.Meta().BootID == m.BootID {
		return nil, ErrExists
	}
	return build(path, m, os.Rename)
}

// build writes a journal under a temporary name, locked from the start, and publishes it.
func build(path string, m Meta, publish func(from, to string) error) (*Journal, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+Name+".*")
	if err != nil {
		return nil, err
	}
	temporary := f.Name()
	defer func() { _ = os.Remove(temporary) }() // gone already after a rename
	db, err := openBolt(f, true)
	if err != nil {
		return nil, err
	}
	if err = db.Update(func(tx *bbolt.Tx) error { return initialise(tx, m) }); err == nil {
		err = publish(temporary, path)
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrExists
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newJournal(db, f, emptyContents(m)), nil
}

// appear renames without replacing: fs.ErrExist where somebody was faster. A filesystem that cannot do so in one
// step can at least link.
func appear(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return os.Link(from, to)
	}
	return err
}

// initialise writes the buckets of an empty journal.
func initialise(tx *bbolt.Tx, m Meta) error {
	for _, name := range [][]byte{bucketMeta, bucketJournal, bucketState, bucketOutbox} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if err := meta.Put(keySchema, []byte{schema}); err != nil {
		return err
	}
	if err := put(meta, keyContainer, m); err != nil {
		return err
	}
	state := tx.Bucket(bucketState)
	if err := put(state, keyCounters, counters{}); err != nil {
		return err
	}
	return put(state, keyInit, lifecycle.ProcessState{})
}

// SetAside renames a journal that cannot be used, so that a new one can be created and the old one looked at
// later. It returns the new name: perdure.db.bad-1, or the first number that is free.
func SetAside(path string) (string, error) {
	for n := 1; ; n++ {
		to := fmt.Sprintf("%s.bad-%d", path, n)
		err := os.Link(path, to)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return "", fmt.Errorf("set aside journal %s: %w", path, err)
		}
		return to, nil
	}
}
