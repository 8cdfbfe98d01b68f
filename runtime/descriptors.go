package runtime

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors is the keeper's descriptor store as this package needs it. What is
// stored outlives the worker.
type Descriptors interface {
	// Store keeps a duplicate of f under a name, replacing an earlier one. It is safe
	// with the keeper when Store returns.
	Store(name string, f *os.File) error
	// Open opens a fifo read-write and keeps that under a name; fifo is a descriptor
	// without access (O_PATH).
	Open(name string, fifo *os.File) error
	// Fetch returns a new duplicate; os.ErrNotExist where there is none.
	Fetch(name string) (*os.File, error)
	// Drop closes the descriptor of that name and everything below it (prefix + "/").
	Drop(prefix string) error
	// Accept accepts a connection on a stored listening socket, stores it under a name
	// and returns a duplicate.
	Accept(listener, name string) (*os.File, error)
}

// Names below a process's prefix. Which of them are there is all that the next worker
// knows, so each stage of a stream is a set of names:
//
//	stdout.fifo                  held: nothing left to copy, what the client has not read yet is kept for it
//	stdout.fifo stdout           copied: from the process's pipe (stdout) to the client's fifo
//	stdout.fifo console          copied: from the terminal
//	stdout.stage .mark .file     appended to a file: see appender; with stdout or console beside them like a fifo
//	logger stdout stderr         the logger reads the process's pipes, which are held open for reading
//	logger stdout stdout.fifo    likewise, with a terminal that is copied to the pipe (stdout.fifo writes to it)
//	stdout stderr                the logger has ended: what is written is thrown away
//	stdin.fifo stdin stdin.hold  fed: from the client's fifo to the process's pipe
//	stdin.fifo stdin             fed until the fifo's last writer is gone (CloseStdin was called)
//	anchor/...                   the client's fifos, held while the rest is being made
//	console.listener             the runtime has not delivered the terminal
//	console.connection           it may be queued on this connection
const (
	nameAnchor     = "anchor"
	nameFifo       = ".fifo"
	nameHold       = ".hold"
	nameFile       = ".file"
	nameStage      = ".stage"
	nameMark       = ".mark"
	nameLogger     = "logger" // its pidfd
	nameConsole    = "console"
	nameListener   = "console.listener"
	nameConnection = "console.connection"
)

// control runs f with a file's descriptor, which stays open and in its mode meanwhile.
// (os.File.Fd may switch a file to blocking mode.)
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := conn.Control(func(fd uintptr) { failed = do(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// pollable returns the file with its description in non-blocking mode and known to
// Go's poller, wherever it comes from. It closes f.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	var file *os.File
	err := control(f, func(fd int) error {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		if err := unix.SetNonblock(dup, true); err != nil {
			_ = unix.Close(dup)
			return err
		}
		file = os.NewFile(uintptr(dup), f.Name())
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return file, nil
}

// ready asks without waiting whether a descriptor has one of the events, an error or
// a hang-up.
func ready(fd int, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// rawConn is SyscallConn of a file known to be open.
func rawConn(f *os.File) syscall.RawConn {
	conn, err := f.SyscallConn()
	if err != nil {
		panic("runtime: " + err.Error()) // only for a nil file
	}
	return conn
}
