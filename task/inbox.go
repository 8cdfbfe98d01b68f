package task

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"perdure/internal/crash"
	"perdure/runtime"
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
	taking  turn // one takes at a time
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
	defer c.inbox.taking.take()()
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
			crash.Here(string(lifecycle.OpExit), a.exec, crash.AfterAck)
		}
	}
}

// exited journals an exit; false means that its process's start comes first, or
// the end of what an init leaves behind.
func (c *container) exited(a arrival) (done bool, err error) {
	done = true
	news := false
	alive := c.do(func() {
		p, ok := c.state().process(a.exec)
		if !ok || p.Exit != nil {
			return
		}
		if _, starting := c.state().Opened(lifecycle.OpStart, a.exec); starting {
			done = false
			return
		}
		if a.exec == "" && !c.swept() {
			done = false
			return
		}
		if err = crash.Fail(string(lifecycle.OpExit), a.exec, crash.BeforeRecord); err == nil {
			err = c.commitExit(a.exec, lifecycle.Exit{Status: waitStatus(a.Exit), At: p.Clamp(a.At), Source: lifecycle.Reaped})
		}
		news = err == nil
	})
	if !alive && c.svc.closed() {
		return false, nil // the next worker's
	}
	if !news {
		return done, err
	}
	crash.Here(string(lifecycle.OpExit), a.exec, crash.AfterRecord)
	c.streams.exited(a.exec)
	if a.exec == "" {
		c.initEnded()
	}
	return true, nil
}

// commitExit journals the end of a process, after other records of the same
// transaction and an OOM that may explain it. An exec's is told at once, the
// init's when no exec lives. Only the actor calls it.
func (c *container) commitExit(exec string, exit lifecycle.Exit, before ...lifecycle.Record) error {
	p, _ := c.state().process(exec)
	p.Exit = &exit
	r := lifecycle.Record{Op: lifecycle.OpExit, Phase: lifecycle.Observed, Exec: exec, Exit: &exit, At: c.svc.Now()}
	if p.Process.Pid != 0 {
		r.Process = &p.Process
	}
	ooms, events := c.untoldOOM(exec == "") // an init's exit is the last that is told
	if exec != "" {
		events = append(events, exitEvent(c.id, exec, p))
	}
	_, err := c.commit(events, slices.Concat(ooms, before, []lifecycle.Record{r})...)
	if err == nil && len(ooms) > 0 {
		c.oomExplained(true)
		crash.Here(string(lifecycle.OpOOM), "", crash.AfterRecord)
	}
	return err
}

// initEnded is done once the init's exit is journaled, whoever has seen it.
func (c *container) initEnded() {
	c.recordExit()
	crash.Here(string(lifecycle.OpExit), "", crash.AfterFile)
	c.killRest()
}

// initLost ends what may be left of an init that was restored and never found.
func (c *container) initLost() {
	if err := c.killCgroup(); err != nil {
		c.svc.warn(c.id, "kill what a lost init has left", err)
	}
	c.initEnded()
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

// waitStatus is the status containerd knows: the exit code, or 128 plus the
// signal that ended the process.
func waitStatus(e Exit) uint32 {
	if e.Status.Signaled() {
		return 128 + uint32(e.Status.Signal())
	}
	return uint32(e.Status.ExitStatus())
}
