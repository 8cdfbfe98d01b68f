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

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// orphanRound is how long one look at the orphans stands before the next: what was
// found may have made processes of its own, or be the container's by now.
const orphanRound = 250 * time.Millisecond

const (
	// defaultFailWait is how long a runtime whose hooks were killed may take to clean up
	// after itself: killed as well, runc leaves cgroups that its delete does not know.
	defaultFailWait = 5 * time.Second
	// killWait is how long a killed process may take to end.
	killWait = 10 * time.Second
)

// WaitOrphans waits for the end of every process that a dead worker left behind for an
// intent, or that this one has started for it. Where ctx ends, or the intent's Limit has
// passed since the call, they are killed, hooks first: one that hangs would have been,
// had its worker lived. It is the caller who judges what is there then. An error says
// that a process could not be killed.
//
// An orphan is the runtime, which carries the intent's marker in its environment and
// leads the process group that every call is given; what descends from it, like its
// hooks; and a fork of the dead worker that has not yet become the runtime. What a hook
// has left running (a daemon it started) is none of them, whatever it has inherited:
// its parents are dead and it leads a session of its own, or no group. Processes of
// another mount namespace are the container's (crun's init has crun's environment until
// the user's program is started).
func (r *Runc) WaitOrphans(ctx context.Context, intent string) error {
	ctx, cancel := context.WithTimeout(ctx, r.Limit(intent))
	defer cancel()
	what := fmt.Sprintf("container %s: %s", r.ID, intent)
	var killAll time.Time
	// A process may have moved to a new parent behind the back of one scan.
	for empty := 0; empty < 2; {
		found, err := r.orphans(intent)
		switch {
		case err != nil:
			return fmt.Errorf("%s: looking for orphans: %w", what, err)
		case len(found) == 0:
			empty++
			continue
		case ctx.Err() == nil:
			err = waitAny(ctx, found, orphanRound)
		default:
			if killAll.IsZero() {
				killAll = time.Now().Add(r.FailWait)
			}
			err = endOrphans(found, time.Now().After(killAll))
		}
		if err != nil {
			return fmt.Errorf("%s: end the runtime's processes: %w", what, err)
		}
		empty = 0
	}
	return nil
}

// orphan is a process that was found; it may have ended since.
type orphan struct {
	pid   int
	start uint64
	below bool // it descends from the runtime
}

// orphans lists the live orphans of an intent, the runtime before its descendants.
func (r *Runc) orphans(intent string) ([]orphan, error) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil, err
	}
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	candidates := slices.Concat(children(r.KeeperPID), children(os.Getpid()))
	slices.Sort(candidates)
	candidates = slices.Compact(candidates) // in tests they are the same
	if r.KeeperPID == 0 {
		if candidates, err = allProcesses(); err != nil {
			return nil, err
		}
	}
	marker := []byte(r.marker(intent))
	var found []orphan
	for _, pid := range candidates {
		start, parent, err := stat(pid) // before it is looked at: see kill
		if err != nil || pid == os.Getpid() || mountNamespace(pid) != own {
			continue
		}
		switch {
		case leads(pid) && carries(pid, marker):
			found = append(append(found, orphan{pid: pid, start: start}), descendants(pid, own)...)
		case r.KeeperPID != 0 && parent == r.KeeperPID && executes(pid, program): // the keeper has one worker at a time, this one
			found = append(found, orphan{pid: pid, start: start})
		}
	}
	return found, nil
}

// leads reports whether a process leads its process group, but no session.
func leads(pid int) bool {
	group, err := unix.Getpgid(pid)
	session, failed := unix.Getsid(pid)
	return err == nil && failed == nil && group == pid && session != pid
}

// executes reports whether a process runs a program, which may have been replaced by
// rename since.
func executes(pid int, program string) bool {
	const deleted = " (deleted)" // proc(5)
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.TrimSuffix(exe, deleted) == strings.TrimSuffix(program, deleted)
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
// not go below those that do not: whole containers.
func descendants(root int, namespace string) []orphan {
	var found []orphan
	next := children(root)
	for len(next) > 0 {
		pid := next[len(next)-1]
		next = next[:len(next)-1]
		start, err := StartTime(pid)
		if err != nil || mountNamespace(pid) != namespace {
			continue
		}
		found = append(found, orphan{pid, start, true})
		next = append(next, children(pid)...)
	}
	return found
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
func waitAny(ctx context.Context, found []orphan, limit time.Duration) error {
	var fds []unix.PollFd
	for _, o := range found {
		process, err := OpenProcess(o.pid, o.start)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		defer process.Close()
		fds = append(fds, unix.PollFd{Fd: int32(process.Fd()), Events: unix.POLLIN})
	}
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(0, min(limit, time.Until(deadline)))
	}
	if _, err := unix.Poll(fds, int(limit.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

// endOrphans kills hooks and lets the runtime have a round to see it, or kills all.
func endOrphans(found []orphan, all bool) error {
	for _, o := range found {
		if all || o.below {
			if err := o.kill(); err != nil {
				return err
			}
		}
	}
	return waitAny(context.Background(), found, orphanRound)
}

// kill ends a process and waits for it. Its identity was taken before it was
// recognised, so none that got its pid later is hit.
func (o orphan) kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	for {
		err := SignalProcess(o.pid, o.start, unix.SIGKILL)
		if errdefs.IsNotFound(err) {
			return nil // or it is a zombie
		}
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("process %d has not ended %s after SIGKILL", o.pid, killWait)
		}
		if err == nil {
			err = waitAny(ctx, []orphan{o}, killWait)
		}
		if err != nil {
			return err
		}
	}
}
