package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kill ends every process in the cgroup and below it, and returns when they have ended.
// Nobody is killed if one of the strangers, the shim's own processes, is there: then the
// cgroup is not the container's but one that all share, as without the right to make any.
// A process is killed through a pidfd and only if it is in the cgroup then, so never one
// that has got the pid of another. Processes that the kernel does not let end (D
// state) are waited for until ctx is done; they die with the signal they have whenever they
// can. The error names them, or what else is wrong.
func (g Cgroup) Kill(ctx context.Context, strangers ...int) error {
	for round := 0; ; round++ {
		pids, err := g.Processes()
		if err != nil {
			return err
		}
		for _, stranger := range strangers {
			if slices.Contains(pids, stranger) {
				return fmt.Errorf("nothing is killed in cgroup %s: the container shares it with process %d", g.dir("pids", "memory"), stranger)
			}
		}
		if len(pids) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("processes %v are killed and do not end: %w", pids, ctx.Err())
		}
		// Whoever forks faster than it is killed is stopped first. Also a paused one is
		// thawed, which version 1 needs for it to die.
		if round > 0 {
			g.freeze()
		}
		killed, failed := g.signalAll(pids)
		err = errors.Join(failed, g.Thaw())
		if err == nil && len(killed) > 0 {
			awaitAll(ctx, killed)
		}
		closeAll(killed...)
		if err != nil {
			return err
		}
		if len(killed) == 0 { // on their way out, and still listed
			time.Sleep(leaving)
		}
	}
}

// leaving is how long a process that cannot be signalled any more is given to go.
const leaving = 5 * time.Millisecond

// freeze asks for a freeze, and does not wait for it: a fork in a cgroup that is freezing is
// frozen as well.
func (g Cgroup) freeze() {
	file, frozen, _ := g.freezer()
	if file != "" {
		state, _, _ := strings.Cut(frozen, " ")
		_ = os.WriteFile(file, []byte(state), 0) // without a freezer the rounds go on until all are dead
	}
}

// signalAll kills the processes and returns pidfds of those that were there.
func (g Cgroup) signalAll(pids []int) (killed []*os.File, err error) {
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // gone, or a thread's pid by now
		}
		f := os.NewFile(uintptr(fd), "pidfd")
		// Whose /proc was read is the process of the pidfd, if that is there to be signalled.
		if !g.contains(pid) {
			_ = f.Close()
			continue
		}
		killed = append(killed, f)
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return killed, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return killed, nil
}

// contains reports whether a process is in the cgroup or below it. With version 1 a first
// thread that has ended is in the root, while others go on.
func (g Cgroup) contains(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/cgroup", pid))
	return slices.ContainsFunc(threads, g.holds)
}

func (g Cgroup) holds(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	other, err := ParseCgroup(string(text))
	if err != nil {
		return false
	}
	for _, controller := range []string{"pids", "memory", unified} {
		if dir := g.dirs[controller]; dir != "" {
			return other.dirs[controller] == dir || strings.HasPrefix(other.dirs[controller], dir+"/")
		}
	}
	return false
}

// awaitAll waits until all processes have ended, or ctx is done.
func awaitAll(ctx context.Context, pidfds []*os.File) {
	for _, f := range pidfds {
		_ = control(f, func(fd int) error { return awaitEnded(ctx, fd) })
	}
}

// killPoll bounds one poll, so that the end of a context without a deadline is seen.
const killPoll = time.Second

func awaitEnded(ctx context.Context, fd int) error {
	for ctx.Err() == nil {
		left := killPoll
		if deadline, ok := ctx.Deadline(); ok {
			left = min(left, max(time.Until(deadline), 0)+time.Millisecond)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return ctx.Err()
}
