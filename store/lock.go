package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// openLocked opens the file at path and takes its lock, shared for a reader. The lock is taken here, not by
// bbolt, so that the file can be verified under it before bbolt maps it.
func openLocked(path string, write bool, timeout time.Duration) (*os.File, error) {
	mode, how := os.O_RDONLY, unix.LOCK_SH
	if write {
		mode, how = os.O_RDWR, unix.LOCK_EX
	}
	deadline := time.Now().Add(timeout)
	for {
		f, err := os.OpenFile(path, mode, 0)
		if err != nil {
			return nil, err
		}
		if err := lock(f, how, deadline); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		current, err := isAt(f, path)
		if err == nil && current {
			return f, nil
		}
		// Create put another file in its place while we waited.
		if err := errors.Join(err, release(f)); err != nil {
			return nil, err
		}
	}
}

// lock takes a flock, trying until the deadline, once at least.
func lock(f *os.File, how int, deadline time.Time) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case !errors.Is(err, unix.EWOULDBLOCK):
			return &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		case time.Now().Add(pause).After(deadline):
			return ErrLocked
		default:
			time.Sleep(pause)
		}
	}
}

// release unlocks and closes. Closing alone would not do: a mapping that a panic left behind keeps the open
// file description, and with it the lock.
func release(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

// isAt says whether the path still leads to the open file.
func isAt(f *os.File, path string) (bool, error) {
	there, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	here, err := f.Stat()
	return err == nil && os.SameFile(here, there), err
}

// openPath opens the same file as a new O_PATH description, whatever its name is now.
func openPath(f *os.File) (*os.File, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: f.Name(), Err: err}
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// guard runs f and returns a panic, or a fault on the mapping of a file that was truncated meanwhile, as
// ErrDamaged.
func guard(f func()) (fault error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			fault = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	f()
	return nil
}
