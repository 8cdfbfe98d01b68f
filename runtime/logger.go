package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

const (
	readyTimeout = 10 * time.Second // for a logger to say that it is ready
	// endGrace is for a logger that ends by itself when its pipes have ended, termTimeout
	// for one that was sent SIGTERM (the stock shim's number), killTimeout for the kernel.
	endGrace    = 500 * time.Millisecond
	termTimeout = 12 * time.Second
	killTimeout = 5 * time.Second
)

// logger is a program that was started to read a process's output.
type logger struct {
	target target
	cmd    *exec.Cmd
	pidfd  *os.File
	ended  chan struct{} // closed when it was reaped; cmd.ProcessState is there then
}

// startLogger starts a logger with its ends of the pipes, and gives the keeper what ends
// it before anything is waited for. It is in a session of its own, without a parent
// death signal, and becomes the keeper's child when this worker ends. Its environment
// and directory are those that the stock shim gives it; what it says on stderr goes to
// /dev/null, as there.
//
// A worker that is killed before the keeper has the logger leaves one that reads the end
// of its pipes: only the worker had the other ends.
func (io *IO) startLogger(t target, stdout, stderr *os.File) (err error) {
	ready, said, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("logger %s: %w", t.path, err)
	}
	defer closeAll(ready, said)
	l := &logger{target: t, ended: make(chan struct{})}
	fd := -1
	l.cmd = &exec.Cmd{
		Path: t.path, Args: append([]string{t.path}, t.args...),
		Env:         []string{"CONTAINER_ID=" + io.opts.ID, "CONTAINER_NAMESPACE=" + io.opts.Namespace},
		Dir:         io.opts.Bundle,
		ExtraFiles:  []*os.File{stdout, stderr, said},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
	}
	if err := l.cmd.Start(); err != nil {
		return fmt.Errorf("logger %s: %w", t.path, cannotRun(err))
	}
	go func() {
		_ = l.cmd.Wait() // an end that nobody waits for; the keeper's to see once this worker has ended
		close(l.ended)
	}()
	closeAll(said)
	if fd < 0 {
		err = errors.New("the kernel gave no pidfd (Linux 5.2)")
	} else {
		l.pidfd = os.NewFile(uintptr(fd), nameLogger)
		err = io.d.Store(io.key(nameLogger), l.pidfd)
	}
	if err == nil {
		err = l.awaitReady(ready, io.opts.GiveUp)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("logger %s: %w", t.path, err), l.abandon(), io.d.Drop(io.key(nameLogger)))
	}
	closeAll(l.pidfd)
	return nil
}

// cannotRun classes the error of a program that cannot be executed: the client has named
// it.
func cannotRun(err error) error {
	for _, wrong := range []error{unix.ENOENT, unix.EACCES, unix.ENOEXEC, unix.EISDIR, unix.ENOTDIR, unix.ELOOP} {
		if errors.Is(err, wrong) {
			return fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	return err
}

// awaitReady waits for a byte, or for binary:// the end of the pipe. A logger that ends
// instead is an error whatever its status: there is nobody to read the output.
func (l *logger) awaitReady(ready *os.File, giveUp <-chan struct{}) error {
	if err := ready.SetReadDeadline(time.Now().Add(readyTimeout)); err != nil {
		return err
	}
	read := make(chan struct{})
	var givenUp atomic.Bool
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-giveUp:
			givenUp.Store(true)
			_ = ready.SetReadDeadline(time.Unix(1, 0)) // wakes the read
		case <-read:
		}
	})
	n, err := ready.Read(make([]byte, 1))
	close(read)
	waiting.Wait()
	switch {
	case n > 0:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded) && givenUp.Load():
		return errors.New("it was not ready when the caller gave up")
	case errors.Is(err, os.ErrDeadlineExceeded):
		wants := "closes descriptor 5 or writes to it"
		if l.target.strict {
			wants = "writes a byte to descriptor 5"
		}
		return fmt.Errorf("it was not ready within %s: a logger says so when it %s", readyTimeout, wants)
	case !errors.Is(err, io.EOF):
		return fmt.Errorf("readiness: %w", err)
	case exiting(l.cmd.Process.Pid):
		<-l.ended
		return fmt.Errorf("it ended before it was ready: %s", l.cmd.ProcessState)
	case l.target.strict:
		return errors.New("it closed descriptor 5 without saying that it is ready: binary-v2 has to write a byte")
	}
	return nil
}

// abandon ends a logger that is of no use. There is nothing for it to write down.
func (l *logger) abandon() error {
	err := l.cmd.Process.Kill()
	closeAll(l.pidfd)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill: %w", err)
	}
	<-l.ended
	return nil
}

// exiting reports whether a child is on its way out. A process that ends gets the flag
// PF_EXITING before its descriptors are closed, so one whose pipe has ended by its exit
// has it by then (Linux, do_exit).
func exiting(pid int) bool {
	const exitingFlag = 0x4
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // reaped
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(fields[6], 10, 64) // field 9 of proc(5)
	return err == nil && flags&exitingFlag != 0
}

// watchLogger waits for the end of a logger whose process may still write. From then
// on what the process writes is read and thrown away, so that it neither blocks nor
// gets SIGPIPE.
func (io *IO) watchLogger() {
	pidfd, err := io.fetchPollable(nameLogger)
	if pidfd == nil || err != nil { // it has ended, and that was seen; or the keeper is gone
		io.discard()
		return
	}
	io.do(func() {
		var idle atomic.Bool
		idle.Store(true)
		err := io.waiting(nameLogger, func() error {
			return rawConn(pidfd).Read(func(fd uintptr) bool { return ready(int(fd), unix.POLLIN) })
		}, &idle)
		if err != nil || io.stopping() {
			return
		}
		if io.heard() {
			log.L.WithField("process", io.prefix).Errorf("the logger %s has ended; output that it would have got is thrown away from now on", io.targets[stdout].path)
		}
		io.discard()
		_ = io.d.Drop(io.key(nameLogger))
	}, pidfd)
}

// heard reports whether something has been written that a logger has not read, or still
// may be.
func (io *IO) heard() bool {
	for _, out := range io.outputs {
		if out == nil {
			continue
		}
		read, err := io.fetch(out.name)
		if read == nil || err != nil {
			continue
		}
		defer closeAll(read)
		events := int16(0)
		_ = control(read, func(fd int) error {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, err := unix.Poll(fds, 0)
			events = fds[0].Revents
			return err
		})
		if events != unix.POLLHUP {
			return true
		}
	}
	return false
}

// discard throws away what comes for a logger that has ended.
func (io *IO) discard() {
	for _, out := range io.outputs {
		if out == nil {
			continue
		}
		read, err := io.fetchPollable(out.name)
		if read == nil || err != nil {
			out.done(err)
			continue
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			closeAll(read)
			out.done(err)
			continue
		}
		io.do(func() {
			if err, ended := out.move(&pump{src: read, dst: null}, out.name); ended {
				out.done(err)
			}
		}, read, null)
	}
}

// endLogger ends the logger of a process that has ended: its pipes are closed, and where
// that does not end it, SIGTERM and SIGKILL do. It can be repeated; a worker killed in
// it is followed by one that does. Nothing to end is no error.
func endLogger(d Descriptors, prefix string) error {
	io := &IO{d: d, prefix: prefix}
	pidfd, err := io.fetchPollable(nameLogger)
	if pidfd == nil || err != nil {
		return err
	}
	defer closeAll(pidfd)
	for _, name := range []string{names[stdout] + nameFifo, names[stdout], names[stderr]} {
		if err := d.Drop(io.key(name)); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		signal unix.Signal // 0: none
		limit  time.Duration
	}{{0, endGrace}, {unix.SIGTERM, termTimeout}, {unix.SIGKILL, killTimeout}} {
		err := control(pidfd, func(fd int) error { return unix.PidfdSendSignal(fd, step.signal, nil, 0) })
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("signal %d to the logger: %w", step.signal, err)
		}
		if ended, err := awaitReadable(pidfd, step.limit); ended || err != nil {
			return err
		}
	}
	return fmt.Errorf("the logger has not ended within %s of SIGKILL", killTimeout)
}

// CloseIO ends the logger of a process and lets go of its stdio, also where this worker
// does not have the IO. It can be repeated.
func CloseIO(d Descriptors, prefix string) error {
	err := errors.Join(endLogger(d, prefix), d.Drop(prefix))
	if err != nil {
		return fmt.Errorf("%s: close: %w", prefix, err)
	}
	return nil
}
