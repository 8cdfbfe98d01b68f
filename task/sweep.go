package task

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/store/lifecycle"
)

// sweep is the end of what an init leaves behind where no pid namespace of its own
// makes the kernel do it: everything in the container's cgroup is killed before the
// init's exit is journaled. The exit is with the keeper until then, so a later
// worker goes on with it.
type sweep struct {
	once sync.Once
	done atomic.Bool
}

// sweepTimeout bounds the wait for processes that are killed and that the kernel
// does not let end.
const sweepTimeout = 5 * time.Second

// swept reports whether the exit of the init can be journaled. If not, that is
// tried again once it can.
func (c *container) swept() bool {
	if c.params.PrivatePIDNamespace {
		return true
	}
	c.sweep.once.Do(func() {
		go func() {
			crash.Here("sweep", "", crash.BeforeEffect)
			if err := c.killCgroup(); err != nil {
				c.svc.warn(c.id, "the init process has left something behind; its exit is told all the same", err)
			}
			crash.Here("sweep", "", crash.AfterEffect)
			c.sweep.done.Store(true)
			c.takeExits()
		}()
	})
	return c.sweep.done.Load()
}

// killCgroup kills what is left in the container's cgroup, if that is its own, and
// waits for its end.
func (c *container) killCgroup() error {
	ctx, cancel := context.WithTimeout(context.Background(), sweepTimeout)
	defer cancel()
	if c.state().Init.Cgroup == "" {
		return nil // it was dead before anything could run in one, or it is in the machine's root
	}
	g, err := c.cgroup()
	if err != nil {
		return err
	}
	return g.Kill(ctx, os.Getpid(), c.svc.KeeperPID)
}

// killRest ends the execs that a stopped init leaves behind, wherever they are, and
// those that were just being started; until then the init's exit cannot be told. It
// goes on until none is left, and a later worker goes on with it.
func (c *container) killRest() {
	if v := c.state(); c.params.PrivatePIDNamespace || v.Init.State != lifecycle.Stopped || v.Live() == 0 {
		return
	}
	go func() {
		for v := c.state(); v.Live() > 0; v = c.state() {
			for _, id := range v.execIDs() { // also those in other cgroups than the init's
				if p := v.Execs[id]; p.State == lifecycle.Running {
					_ = c.svc.Machine.SignalProcess(p.Process.Pid, p.Process.Start, unix.SIGKILL)
				}
			}
			if err := c.killCgroup(); err != nil {
				c.svc.warn(c.id, "kill what the init process left behind", err)
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
