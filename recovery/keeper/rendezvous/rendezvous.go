// Package rendezvous says where a keeper is found: the path of its socket, the
// locks beside it, and whether it lives.
//
// Two locks (flock, so that the kernel lets go of them whatever dies) stand
// beside a socket. <socket>.start is held for moments: by `start` while it looks,
// binds and answers, by a keeper while it unlinks its socket to leave. It makes
// "a keeper is there" and "there is none" the only two things a `start` can see.
// <socket>.keeper is held by a keeper all its life: that it can be taken is the
// proof, the only one, that the keeper is dead.
//
// The package never waits without a limit and never removes a file of a keeper
// that may live. It imports the standard library and golang.org/x/sys only.
package rendezvous

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultDir is where containerd's shims have their sockets.
const DefaultDir = "/run/containerd/s"

// maxPath is the longest socket path in bytes: sun_path has 108, containerd
// allows 106.
const maxPath = 106

const scheme = "unix://"

// ErrHeld means that somebody else has the lock.
var ErrHeld = errors.New("lock is held")

// Path is the socket of a group's keeper. The name is the one that containerd's
// own shim derives (sha256 over the joined path of containerd's address,
// namespace and group), so that each finds the other's socket where a pod was
// begun by the other one.
func Path(dir, containerd, namespace, group string) (string, error) {
	sum := sha256.Sum256([]byte(filepath.Join(containerd, namespace, group)))
	path := filepath.Join(dir, fmt.Sprintf("%x", sum))
	if len(path) > maxPath {
		return "", fmt.Errorf("socket path %s has %d bytes, at most %d are possible: choose a shorter socket directory", path, len(path), maxPath)
	}
	return path, nil
}

// Address is the form in which containerd is told a path.
func Address(path string) string { return scheme + path }

// FromAddress is the reverse of Address; other schemes are an error.
func FromAddress(address string) (string, error) {
	path, ok := strings.CutPrefix(address, scheme)
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is no %s address", address, scheme)
	}
	return path, nil
}

// LockStart takes <socket>.start, waiting for at most the given time; ErrHeld
// after that. Closing the file lets go of it.
func LockStart(path string, wait time.Duration) (*os.File, error) {
	return lockWithin(path+".start", wait)
}

// LockKeeper takes <socket>.keeper for a keeper's life. The caller holds the
// start lock. Who looks by Dead may be in the way for a moment, hence the wait.
func LockKeeper(path string, wait time.Duration) (*os.File, error) {
	return lockWithin(path+".keeper", wait)
}

// Dead reports whether no keeper holds this socket. Where the answer cannot be
// had it is false, with the error. Whoever goes on to remove something must hold
// the start lock, or a keeper may be born meanwhile.
func Dead(path string) (bool, error) {
	f, err := os.OpenFile(path+".keeper", os.O_RDWR|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	switch err := flock(f); {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrHeld):
		return false, nil
	default:
		return false, err
	}
}

// Remove unlinks the socket and both lock files. The caller holds the start
// lock, and is the keeper or knows that it is dead.
func Remove(path string) error {
	var failed error
	for _, name := range []string{path, path + ".keeper", path + ".start"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// Connectable reports whether somebody listens on the socket; an error says
// that this could not be found out. That nobody does is no proof that a keeper is
// dead. It never waits: a full queue of connections is somebody, too.
func Connectable(path string) (bool, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	switch {
	case err == nil, errors.Is(err, unix.EAGAIN):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return false, nil
	}
	return false, fmt.Errorf("connecting to %s: %w", path, err)
}

func lockWithin(name string, wait time.Duration) (*os.File, error) {
	const step = 2 * time.Millisecond
	for deadline := time.Now().Add(wait); ; time.Sleep(step) {
		f, err := lock(name)
		if !errors.Is(err, ErrHeld) || !time.Now().Before(deadline) {
			return f, err
		}
	}
}

// lock opens and locks a file that others may remove: it is only held when the
// name still means the file that was locked.
func lock(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, err
		}
		held, err := f.Stat()
		if err == nil {
			if named, statErr := os.Stat(name); statErr == nil && os.SameFile(held, named) {
				return f, nil
			}
		}
		f.Close()
		if err != nil {
			return nil, err
		}
	}
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("%s: %w", f.Name(), ErrHeld)
		case err != nil:
			return fmt.Errorf("locking %s: %w", f.Name(), err)
		default:
			return nil
		}
	}
}
