package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Handle holds on to one process, whatever becomes of its number.
type Handle struct {
	Pid int
	fd  int
}

// Open takes hold of the process pid, if same says that it is the one meant;
// same is asked after the hold is taken. A process that is gone is
// os.ErrNotExist.
func Open(pid int, same func(Process) bool) (*Handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil, os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	h := &Handle{Pid: pid, fd: fd}
	if p, err := Read(pid); err != nil || !same(p) {
		h.Close()
		return nil, os.ErrNotExist
	}
	return h, nil
}

// Signal sends sig. A process that has ended is os.ErrNotExist.
func (h *Handle) Signal(sig unix.Signal) error {
	err := unix.PidfdSendSignal(h.fd, sig, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return os.ErrNotExist
	}
	if err != nil {
		return fmt.Errorf("send %v to process %d: %w", sig, h.Pid, err)
	}
	return nil
}

// Wait returns once the process has ended, reaped or not.
func (h *Handle) Wait(ctx context.Context) error {
	for {
		fds := []unix.PollFd{{Fd: int32(h.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int((100 * time.Millisecond).Milliseconds()))
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("poll pidfd of process %d: %w", h.Pid, err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("process %d is still alive: %w", h.Pid, ctx.Err())
		}
	}
}

// Close lets go of the process.
func (h *Handle) Close() { unix.Close(h.fd) }

// Kill ends the process pid with SIGKILL, if same says it is the one meant,
// and waits for its end.
func Kill(ctx context.Context, pid int, same func(Process) bool) error {
	h, err := Open(pid, same)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(unix.SIGKILL); err != nil {
		return err
	}
	return h.Wait(ctx)
}
