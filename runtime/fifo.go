package runtime

import (
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// findFifo returns a descriptor without access (O_PATH) of the client's fifo: so
// what turns out not to be a fifo is not opened, and nothing blocks.
func findFifo(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("stdio fifo %s does not exist, the client has to make it first: %w", path, errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return nil, fmt.Errorf("stdio fifo %s: %w", path, err)
	}
	fifo := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		closeAll(fifo)
		return nil, fmt.Errorf("stdio fifo %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		closeAll(fifo)
		return nil, fmt.Errorf("stdio %s is not a fifo: %w", path, errdefs.ErrInvalidArgument)
	}
	return fifo, nil
}

// openFifo opens the client's fifo; flags are those of open(2), close-on-exec is
// added.
func openFifo(path string, flags int) (*os.File, error) {
	found, err := findFifo(path)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", found.Fd()), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("stdio fifo %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// widen lets a fifo take more before its writer has to wait for a reader. Each
// splice from a terminal takes one of a pipe's slots, however few bytes it moves, and
// by default there are 16. The kernel's own limit for a user without privileges is
// asked for (pipe(7), pipe-max-size); where it refuses, the fifo stays as it is.
func widen(fifo *os.File) {
	_ = control(fifo, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, 1<<20)
		return err
	})
}

// pipe makes a pipe for one stream of a process. ours is non-blocking, theirs is not:
// the ends are separate descriptions, the process never sees our mode.
func pipe(name string, oursReads bool, uid, gid int) (ours, theirs *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	read, write := ends[0], ends[1]
	our, their := read, write
	if !oursReads {
		our, their = write, read
	}
	err = unix.SetNonblock(our, true)
	if err == nil && (uid != 0 || gid != 0) {
		err = unix.Fchown(their, uid, gid)
	}
	ours, theirs = os.NewFile(uintptr(our), name), os.NewFile(uintptr(their), name)
	if err != nil {
		closeAll(ours, theirs)
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	return ours, theirs, nil
}

// blockingPipe makes a pipe for two processes, neither of which is this one.
func blockingPipe(name string, uid, gid int) (read, write *os.File, err error) {
	read, write, err = pipe(name, true, uid, gid)
	if err == nil {
		err = control(read, func(fd int) error { return unix.SetNonblock(fd, false) })
	}
	if err != nil {
		closeAll(read, write)
		return nil, nil, fmt.Errorf("pipe for %s: %w", name, err)
	}
	return read, write, nil
}

// unread is the number of bytes in a pipe or fifo.
func unread(f *os.File) (n int, err error) {
	err = control(f, func(fd int) error {
		n, err = unix.IoctlGetInt(fd, unix.TIOCINQ) // FIONREAD
		return err
	})
	return n, err
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}
