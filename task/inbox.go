package task

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
)

// arrival is an exit of one of a container's processes.
type arrival struct {
	Exit
	id   lifecycle.Process
	exec string
}

// inbox keeps a container's exits until they are journaled.
type inbox struct {
	mu      sync.Mutex
	waiting []arrival
	taking  sync.Mutex // one takes at a time
}

func (b *inbox) put(a arrival) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, a)
}

func (b *inbox) list() []arrival {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.waiting)
}

func (b *inbox) drop(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(a arrival) bool { return a.Seq == seq })
}

// exitRetry is when a journal that refused an exit is tried again.
const exitRetry = time.Second

// takeExits journals the exits that have arrived, in their order, and
// acknowledges them to the keeper. One whose process's start is not concluded
// waits for that, one that the journal refuses for a while.
func (c *container) takeExits() {
	c.inbox.taking.Lock()
	defer c.inbox.taking.Unlock()
	for _, a := range c.inbox.list() {
		done, err := c.exited(a)
		if err != nil {
			c.svc.warn(c.id, "an exit could not be journaled; it stays with the keeper", err)
			time.AfterFunc(exitRetry, c.takeExits)
			return
		}
		if done {
			c.inbox.drop(a.Seq)
			c.svc.exits.settled(a.id, a.Seq)
		}
	}
}

// exited journals an exit; false means that its process's start comes first.
func (c *container) exited(a arrival) (done bool, err error) {
	done = true
	news := false
	c.do(func() {
		p, ok := c.state().process(a.exec)
		if !ok || p.Exit != nil {
			return
		}
		if _, starting := c.state().Opened(lifecycle.OpStart, a.exec); starting {
			done = false
			return
		}
		crash.Here(string(lifecycle.OpExit), a.exec, crash.BeforeRecord)
		err = c.commitExit(a.exec, lifecycle.Exit{Status: waitStatus(a.Exit), At: p.Clamp(a.At), Source: lifecycle.Reaped})
		news = err == nil
	})
	if !news {
		return done, err
	}
	crash.Here(string(lifecycle.OpExit), a.exec, crash.AfterRecord)
	c.streams.exited(a.exec)
	if a.exec == "" {
		c.recordExit()
		c.killRest()
	}
	return true, nil
}

// commitExit journals the end of a process, after other records of the same
// transaction. An exec's is told at once, the init's when no exec lives. Only
// the actor calls it.
func (c *container) commitExit(exec string, exit lifecycle.Exit, before ...lifecycle.Record) error {
	p, _ := c.state().process(exec)
	p.Exit = &exit
	r := lifecycle.Record{Op: lifecycle.OpExit, Phase: lifecycle.Observed, Exec: exec, Exit: &exit, At: c.svc.Now()}
	if p.Process.Pid != 0 {
		r.Process = &p.Process
	}
	var events []store.Event
	if exec != "" {
		events = append(events, c.exitEvent(exec, p))
	}
	_, err := c.commit(events, append(before, r)...)
	return err
}

// lost is the exit of a process that nobody saw end.
func (c *container) lost(p lifecycle.ProcessState) lifecycle.Exit {
	return lifecycle.Exit{Status: lifecycle.UnknownStatus, At: p.Clamp(c.svc.Now()), Source: lifecycle.Unknown}
}

// recordExit writes the init's exit beside the journal, for readers that cannot
// have its lock. The journal is what counts.
func (c *container) recordExit() {
	init := c.state().Init
	if init.Exit == nil {
		return
	}
	err := runtime.WriteExit(c.journal.Meta().Bundle, init.Process.Pid, init.Exit.Status, init.Exit.At)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		c.svc.warn(c.id, "write exit.json", err)
	}
}

// killRest ends what an init leaves behind where no pid namespace of its own
// makes the kernel do it; until then the init's exit cannot be told. It goes on
// until no exec is left, and a later worker goes on with it.
func (c *container) killRest() {
	if v := c.state(); c.params.PrivatePIDNamespace || v.Init.State != lifecycle.Stopped || v.Live() == 0 {
		return
	}
	go func() {
		for v := c.state(); v.Live() > 0; v = c.state() {
			ctx, cancel := context.WithTimeout(context.Background(), runcTimeout)
			err := c.runc.KillAll(ctx, "kill-rest", killSignal)
			cancel()
			if err != nil && !errdefs.IsNotFound(err) {
				c.svc.warn(c.id, "kill what the init process left behind", err)
			}
			for _, p := range v.Execs { // also those in other cgroups than the init's
				if p.State == lifecycle.Running {
					_ = runtime.SignalProcess(p.Process.Pid, p.Process.Start, unix.SIGKILL)
				}
			}
			select {
			case <-v.changed:
			case <-c.stopped:
				return
			case <-time.After(exitRetry):
			}
		}
	}()
}

// waitStatus is the status containerd knows: the exit code, or 128 plus the
// signal that ended the process.
func waitStatus(e Exit) uint32 {
	if e.Status.Signaled() {
		return 128 + uint32(e.Status.Signal())
	}
	return uint32(e.Status.ExitStatus())
}
