package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runc "github.com/containerd/go-runc"
	"golang.org/x/sys/unix"
)

// consoleTimeout is how long Started waits for a terminal the runtime reports to have
// delivered. It has, so this is only reached where a runtime does not keep its word.
const consoleTimeout = 10 * time.Second

// socketPath is what go-runc wants of a console socket.
type socketPath string

func (p socketPath) Path() string { return string(p) }

// consoleSocket is the path given to the runtime, relative to the bundle, its working
// directory; nil without a terminal.
func (io *IO) consoleSocket() runc.ConsoleSocket {
	if !io.stdio.Terminal {
		return nil
	}
	return socketPath(filepath.Join(intentDir, io.opts.Intent+".sock"))
}

// listenConsole makes the listening socket for a terminal under the intent's name in
// the bundle. It is bound through the directory's descriptor: bundle paths exceed the
// 108 bytes of a socket address.
func listenConsole(bundle, intent string) (*os.File, error) {
	path := filepath.Join(bundle, intentDir)
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	dir, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	listener := os.NewFile(uintptr(fd), intent+".sock")
	if err := unix.Unlinkat(dir, intent+".sock", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		closeAll(listener)
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s.sock", dir, intent)}); err != nil {
		closeAll(listener)
		return nil, err
	}
	if err := unix.Listen(fd, 1); err != nil {
		closeAll(listener)
		return nil, err
	}
	return listener, nil
}

// takeConsole brings the terminal's master from the runtime into the keeper's store.
// Each step leaves the master with the keeper: queued on the listener, queued on the
// connection, stored. So the next worker goes on wherever this one was killed. A zero
// limit takes only what is there already; nil without an error means not there yet.
func (io *IO) takeConsole(limit time.Duration) (*os.File, error) {
	master, err := io.fetchPollable(nameConsole)
	if master != nil || err != nil {
		return master, err
	}
	connection, err := io.consoleConnection(limit)
	if connection == nil || err != nil {
		return nil, err
	}
	defer closeAll(connection)
	if there, err := awaitReadable(connection, limit); !there || err != nil {
		return nil, err
	}
	received, err := peekMaster(connection)
	if err != nil {
		return nil, err
	}
	if master, err = pollable(received); err != nil {
		return nil, err
	}
	if err := io.d.Store(io.key(nameConsole), master); err != nil {
		closeAll(master)
		return nil, err
	}
	return master, nil
}

// dropConsoleSocket ends the way a terminal came, once it is stored. Closing the
// connection discards the queued duplicate.
func (io *IO) dropConsoleSocket() error {
	return errors.Join(io.d.Drop(io.key(nameConnection)), io.d.Drop(io.key(nameListener)), io.removeSocket())
}

func (io *IO) removeSocket() error {
	err := os.Remove(filepath.Join(io.opts.Bundle, intentDir, io.opts.Intent+".sock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (io *IO) consoleConnection(limit time.Duration) (*os.File, error) {
	connection, err := io.fetchPollable(nameConnection)
	if connection != nil || err != nil {
		return connection, err
	}
	listener, err := io.fetchPollable(nameListener)
	if listener == nil || err != nil {
		return nil, err
	}
	defer closeAll(listener)
	if there, err := awaitReadable(listener, limit); !there || err != nil {
		return nil, err
	}
	if connection, err = io.d.Accept(io.key(nameListener), io.key(nameConnection)); err != nil {
		return nil, fmt.Errorf("console connection: %w", err)
	}
	return pollable(connection)
}

// awaitReadable waits at most limit; false means that nothing came.
func awaitReadable(f *os.File, limit time.Duration) (bool, error) {
	if err := f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return false, err
	}
	there := false
	err := rawConn(f).Read(func(fd uintptr) bool {
		there = ready(int(fd), unix.POLLIN)
		return there || limit == 0
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
		_ = control(f, func(fd int) error { there = ready(fd, unix.POLLIN); return nil })
	}
	return there, err
}

// peekMaster duplicates the terminal queued on a connection and leaves it queued.
func peekMaster(connection *os.File) (*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(4*4))
	var n int
	err := control(connection, func(fd int) (err error) {
		_, n, _, _, err = unix.Recvmsg(fd, make([]byte, 1), oob, unix.MSG_PEEK|unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("console connection: %w", err)
	}
	files, err := rights(oob[:n])
	if err != nil {
		return nil, fmt.Errorf("console connection: %w", err)
	}
	if len(files) != 1 {
		closeAll(files...)
		return nil, fmt.Errorf("console connection: the runtime sent %d descriptors instead of a terminal", len(files))
	}
	err = control(files[0], func(fd int) error {
		_, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	if err != nil {
		closeAll(files...)
		return nil, fmt.Errorf("console connection: the runtime sent something that is no terminal: %w", err)
	}
	return files[0], nil
}

// rights takes the descriptors out of a message's control data.
func rights(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(files...)
			return nil, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "console"))
		}
	}
	return files, nil
}
