package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// ErrZombie says that a process has ended and waits to be reaped.
var ErrZombie = errors.New("process has ended")

// StartTime is when the process was started, in clock ticks since boot (field 22 of
// /proc/pid/stat). With the pid and the boot id it identifies a process. A process
// that has ended is ErrZombie, or errdefs.ErrNotFound once it is reaped.
func StartTime(pid int) (uint64, error) {
	start, _, err := stat(pid)
	return start, err
}

// ChildStartTime is StartTime of a child of parent. A process of another parent has got
// the pid later, and is errdefs.ErrNotFound.
func ChildStartTime(pid, parent int) (uint64, error) {
	start, of, err := stat(pid)
	if err == nil && of != parent {
		err = fmt.Errorf("process %d is no child of %d: %w", pid, parent, errdefs.ErrNotFound)
	}
	return start, err
}

// stat reads the start time and the parent of a process that has not ended.
func stat(pid int) (start uint64, parent int, err error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, 0, fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	// Field 2 is the command in parentheses and may hold anything; field 3 follows the last ')'.
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("process %d: unexpected /proc stat line %q", pid, line)
	}
	if state := fields[0][0]; state == 'Z' || state == 'X' {
		return 0, 0, fmt.Errorf("process %d: %w", pid, ErrZombie)
	}
	if parent, err = strconv.Atoi(string(fields[1])); err != nil {
		return 0, 0, fmt.Errorf("process %d: unexpected /proc stat line %q", pid, line)
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	return start, parent, err
}

// forkNoExec is the flag of a process that has executed nothing since it was forked (PF_FORKNOEXEC, linux/sched.h).
const forkNoExec = 0x40

// executed says whether the process that was started at start has executed a program. An init that waits for its start has
// not: runtimes fork it, and what it executes is the user's program.
func executed(pid int, start uint64) bool {
	now, _, err := stat(pid)
	if err != nil || now != start {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 7 {
		return false
	}
	flags, err := strconv.ParseUint(string(fields[6]), 10, 64) // field 9 of proc_pid_stat(5)
	return err == nil && flags&forkNoExec == 0
}

// OpenProcess returns a pidfd of exactly the process that was started at start.
// errdefs.ErrNotFound when it has ended, whoever has its pid now.
func OpenProcess(pid int, start uint64) (*os.File, error) {
	gone := fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: the pid is a thread's by now
		return nil, gone
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: pidfd_open: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid))
	now, err := StartTime(pid)
	if err == nil && now == start {
		return f, nil
	}
	_ = f.Close()
	if err == nil || errdefs.IsNotFound(err) || errors.Is(err, ErrZombie) {
		return nil, gone
	}
	return nil, err
}

// SignalProcess signals exactly the process that was started at start, never one that
// got its pid later. errdefs.ErrNotFound when it has ended.
func SignalProcess(pid int, start uint64, signal unix.Signal) error {
	f, err := OpenProcess(pid, start)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.PidfdSendSignal(int(f.Fd()), signal, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	}
	if err != nil {
		return fmt.Errorf("process %d: signal %d: %w", pid, signal, err)
	}
	return nil
}
