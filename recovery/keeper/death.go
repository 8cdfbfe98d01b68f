package keeper

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// died takes the reaped worker's legacy: everything it said counts, down to the
// last whole message and frame.
func (k *keeper) died(status unix.WaitStatus) {
	w := k.worker
	cause := describe(status)
	k.restart.killed = status.Signaled() && status.Signal() == unix.SIGKILL && !w.killed
	w.killed = true // it is given nothing any more, and its pid is free
	for !w.distrusted && k.readControl() {
	}
	k.poll.remove(w.control)
	unix.Close(w.control.fd)
	for _, p := range w.out {
		p.close()
	}
	for _, c := range append([]*conn(nil), k.conns...) {
		c.drain()
		switch {
		case w.hung: // its own request is the one whose actor did not answer
			c.strike(cause, func(r *request) bool { return r == w.ping })
		case fault(status) || w.distrusted:
			c.strike(cause, func(r *request) bool { return !r.wait })
		}
	}
	open := k.freshWait() || k.oldest() != nil || k.exits.live > 0
	for _, c := range k.conns {
		c.unmirror()
	}
	k.worker = nil
	k.restart.died = k.now
	k.restart.needed = open
	k.restart.idle = status.Exited() && status.ExitStatus() == 0
	if k.restart.idle && !open {
		k.restart.short = 0
		k.armMarks()
		crash.Here("keeper-rest", "", crash.AfterLeave)
		return
	}
	if k.restart.short++; k.now.Sub(w.started) >= k.ShortLife {
		k.restart.short = 0
	}
	k.log("error", "worker %d ended after %v: %s", w.pid, k.now.Sub(w.started).Round(time.Millisecond), cause)
}

// freshWait says that a Wait was handed to a worker so shortly before its end
// that it may never have read it. Older Waits, of processes that still run, let
// a worker rest.
func (k *keeper) freshWait() bool {
	for _, c := range k.conns {
		for _, r := range c.pending[c.sent:] {
			if r.handed == 0 {
				return true
			}
		}
		for _, r := range c.pending[:c.sent] {
			if r.wait && r.handed == 1 && k.now.Sub(r.fresh) < k.FreshWait {
				return true
			}
		}
	}
	return false
}

// strike holds a fault against those suspects that the worker was executing, and
// answers those that have ended too many workers.
func (c *conn) strike(cause string, suspect func(*request) bool) {
	for i := c.whole() - 1; i >= 0; i-- {
		r := c.pending[i]
		if !suspect(r) {
			continue
		}
		if r.strikes++; r.strikes < c.k.Strikes {
			continue
		}
		c.k.log("error", "request %d (%s) given up: %d workers that executed it ended by a fault", r.number, r.method(), r.strikes)
		c.out.add(protocol.AppendStatus(nil, r.stream, protocol.CodeInternal, fmt.Sprintf(
			"perdure: %s was given up after it was executing in %d workers that ended by a fault (%s); see containerd's log for their stacks",
			r.method(), r.strikes, cause)))
		c.drop(i)
	}
	c.flush()
}

// fault says that the worker ended by its own fault: a panic (exit code 2), or
// a signal the Go runtime or the kernel raises for one.
func fault(status unix.WaitStatus) bool {
	if status.Exited() {
		return status.ExitStatus() == 2
	}
	switch status.Signal() {
	case unix.SIGSEGV, unix.SIGBUS, unix.SIGILL, unix.SIGFPE, unix.SIGABRT, unix.SIGQUIT:
		return true
	}
	return false
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "signal " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
