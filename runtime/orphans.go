package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// orphanRound is how long one look at the orphans stands before the next: a process
// found may turn into the container's init (crun forks it) and then no longer counts.
const orphanRound = 250 * time.Millisecond

// WaitOrphans waits for the end of every process that a dead worker left behind for an
// intent: the runtime itself, and hooks it runs. They are recognised by the marker in
// their environment; a fork of the dead worker that has not yet become the runtime,
// by the worker's name. Processes of another mount namespace are the container's (crun's
// init has crun's environment until the user's program is started) and do not count.
// The error is ctx's, naming the processes that are left.
func (r *Runc) WaitOrphans(ctx context.Context, intent string) error {
	empty := 0
	for {
		found, err := r.orphans(intent)
		if err != nil {
			return fmt.Errorf("container %s: %s: looking for orphans: %w", r.ID, intent, err)
		}
		if len(found) == 0 {
			// A process may have moved to a new parent behind the back of one scan.
			if empty++; empty == 2 {
				return nil
			}
			continue
		}
		empty = 0
		if ctx.Err() != nil {
			return fmt.Errorf("container %s: %s: still running for a worker that died: processes %v: %w", r.ID, intent, found, ctx.Err())
		}
		if err := waitAny(ctx, found, orphanRound); err != nil {
			return fmt.Errorf("container %s: %s: waiting for orphans %v: %w", r.ID, intent, found, err)
		}
	}
}

// orphans lists the live processes that carry the intent's marker.
func (r *Runc) orphans(intent string) ([]int, error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	candidates, err := descendants(r.KeeperPID, own)
	if err != nil {
		return nil, err
	}
	marker := []byte(r.marker(intent))
	found := r.unexecuted()
	for _, pid := range candidates {
		if carries(pid, marker) && mountNamespace(pid) == own {
			found = append(found, pid)
		}
	}
	return found, nil
}

// unexecuted lists forks of a dead worker between fork and execve: children of the
// keeper with this program's name. The keeper has one worker at a time, this one.
func (r *Runc) unexecuted() []int {
	if r.KeeperPID == 0 {
		return nil
	}
	own := command(os.Getpid())
	return slices.DeleteFunc(children(r.KeeperPID), func(pid int) bool {
		return pid == os.Getpid() || command(pid) != own
	})
}

// command is a process's name; empty for one that has ended.
func command(pid int) string {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return string(comm)
}

func mountNamespace(pid int) string {
	ns, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)) // empty for a process that has ended
	return ns
}

// carries reads a process's environment. One that has ended has none.
func carries(pid int, marker []byte) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, marker) {
			return true
		}
	}
	return false
}

// descendants lists the processes below root that share the mount namespace, and does
// not go below those that do not: whole containers. Root 0 means every process.
func descendants(root int, namespace string) ([]int, error) {
	if root == 0 {
		return allProcesses()
	}
	var found []int
	next := children(root)
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		if mountNamespace(pid) != namespace {
			continue
		}
		found = append(found, pid)
		next = append(next, children(pid)...)
	}
	return found, nil
}

// children reads /proc/pid/task/*/children: a child belongs to the thread that made it.
func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func allProcesses() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// waitAny returns when one of the processes has ended, the limit has passed or ctx is
// done.
func waitAny(ctx context.Context, pids []int, limit time.Duration) error {
	fds := make([]unix.PollFd, 0, len(pids))
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(int(fd.Fd))
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("pidfd_open %d: %w", pid, err)
		}
		fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(deadline)))
	}
	if _, err := unix.Poll(fds, int(limit.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}
