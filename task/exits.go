package task

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
)

// exits routes dead children of the keeper to their containers.
//
// An exit can come before its process is known: a container's process may be
// gone before runc has written its pid. So an exit that nobody claims is held
// as long as a command is under way that began before it came, and is
// acknowledged as nobody's after that. One that belongs to a process whose
// start is not concluded is held as well: its start is told first.
type exits struct {
	keeper Keeper

	mu       sync.Mutex
	clock    uint64              // counts openings and arrivals
	openings map[uint64]struct{} // commands under way that bring up a process, by when they began
	held     []heldExit
	arrived  chan struct{} // closed and replaced when held grows
	claims   map[lifecycle.Process]claim

	reviewing sync.Mutex // one review at a time; never taken inside an actor
}

type heldExit struct {
	Exit
	came uint64 // on the clock
}

type claim struct {
	container *container
	exec      string
}

func newExits(keeper Keeper) *exits {
	return &exits{
		keeper:   keeper,
		openings: map[uint64]struct{}{},
		arrived:  make(chan struct{}),
		claims:   map[lifecycle.Process]claim{},
	}
}

// opened notes that a process may come up whose pid nobody knows yet. The
// caller calls what it returns when that command is concluded.
func (x *exits) opened() (closed func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.clock++
	began := x.clock
	x.openings[began] = struct{}{}
	if len(x.openings) == 1 {
		x.keeper.Hold(true)
	}
	return func() {
		x.mu.Lock()
		delete(x.openings, began)
		if len(x.openings) == 0 {
			x.keeper.Hold(false)
		}
		x.mu.Unlock()
		x.review()
	}
}

// claim makes a process known: its exit belongs to the container from now on.
func (x *exits) claim(c *container, exec string, p lifecycle.Process) {
	x.keeper.Watch(p.Pid, p.Start)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.claims[p] = claim{c, exec}
}

// forget drops a container's claims.
func (x *exits) forget(c *container) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.claims, func(_ lifecycle.Process, cl claim) bool { return cl.container == c })
}

// arrive takes one exit from the keeper.
func (x *exits) arrive(e Exit) {
	x.mu.Lock()
	x.clock++
	x.held = append(x.held, heldExit{e, x.clock})
	close(x.arrived)
	x.arrived = make(chan struct{})
	x.mu.Unlock()
	x.review()
}

// review goes through the held exits: each is journaled and acknowledged,
// acknowledged as nobody's, or held on.
func (x *exits) review() {
	x.reviewing.Lock()
	defer x.reviewing.Unlock()
	x.mu.Lock()
	held := slices.Clone(x.held)
	x.mu.Unlock()
	for _, e := range held {
		if x.deliver(e) {
			x.keeper.Acknowledge(e.Seq)
			x.mu.Lock()
			x.held = slices.DeleteFunc(x.held, func(h heldExit) bool { return h.Seq == e.Seq })
			x.mu.Unlock()
		}
	}
}

// deliver reports whether an exit is done with.
func (x *exits) deliver(e heldExit) bool {
	x.mu.Lock()
	id, cl, known := x.claimed(e.Exit)
	awaited := false
	for began := range x.openings {
		awaited = awaited || began < e.came
	}
	x.mu.Unlock()
	if !known {
		return !awaited
	}
	if !cl.container.exited(cl.exec, e.Exit) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.claims, id)
	return true
}

// claimed finds whose exit it is. Where the keeper could not read the start
// time the pid alone decides: the keeper had the pid until it reaped it, so no
// other live process can have had it.
func (x *exits) claimed(e Exit) (lifecycle.Process, claim, bool) {
	id := lifecycle.Process{Pid: e.Pid, Start: e.Start}
	cl, known := x.claims[id]
	if known || e.Start != 0 {
		return id, cl, known
	}
	for id, cl := range x.claims {
		if id.Pid == e.Pid {
			return id, cl, true
		}
	}
	return id, cl, false
}

// identify finds the start time of a process that runc has just brought up:
// from /proc, or from its exit where it is dead already.
func (x *exits) identify(ctx context.Context, pid int) (uint64, error) {
	for {
		x.mu.Lock()
		arrived := x.arrived
		exit := slices.IndexFunc(x.held, func(e heldExit) bool { return e.Pid == pid })
		var start uint64
		if exit >= 0 {
			start = x.held[exit].Start
		}
		x.mu.Unlock()
		alive, err := runtime.StartTime(pid)
		switch {
		case err == nil:
			return alive, nil
		case exit >= 0:
			return start, nil
		}
		select {
		case <-arrived: // it is a zombie or reaped: its exit is on the way
		case <-ctx.Done():
			return 0, fmt.Errorf("neither alive nor reaped by the keeper: %w", err)
		}
	}
}

// Exited takes one exit from the keeper; it is acknowledged once it is
// journaled or known to be nobody's. Called for each exit in order.
func (s *Service) Exited(e Exit) {
	s.idle.begin()
	defer s.idle.end()
	s.exits.arrive(e)
}

// exited journals the exit of a process; false means it must be shown again:
// its start is not concluded, or the journal could not be written.
func (c *container) exited(exec string, e Exit) bool {
	done := true
	c.do(func() {
		p, ok := c.state().process(exec)
		if !ok || p.Exit != nil {
			return
		}
		if _, starting := c.state().Opened(lifecycle.OpStart, exec); starting {
			done = false
			return
		}
		crash.Here(string(lifecycle.OpExit), exec, crash.BeforeRecord)
		p.Exit = &lifecycle.Exit{Status: waitStatus(e), At: p.Clamp(e.At), Source: lifecycle.Reaped}
		var events []store.Event
		if exec != "" {
			events = append(events, c.exitEvent(exec, p))
		}
		_, err := c.commit(events, lifecycle.Record{
			Op: lifecycle.OpExit, Phase: lifecycle.Observed, Exec: exec, Process: &p.Process, Exit: p.Exit, At: c.svc.Now(),
		})
		if err != nil {
			c.svc.warn(c.id, "an exit could not be journaled; it stays with the keeper", err)
			done = false
		}
	})
	if !done {
		return false
	}
	crash.Here(string(lifecycle.OpExit), exec, crash.AfterRecord)
	c.streams.exited(exec)
	if exec == "" {
		c.recordExit()
	}
	if exec == "" && !c.params.PrivatePIDNamespace {
		go c.killRest()
	}
	return true
}

// recordExit writes the init's exit beside the journal, for readers that cannot
// have its lock. The journal is what counts.
func (c *container) recordExit() {
	init := c.state().Init
	if init.Exit == nil {
		return
	}
	err := runtime.WriteExit(c.journal.Meta().Bundle, init.Process.Pid, init.Exit.Status, init.Exit.At)
	if err != nil && !os.IsNotExist(err) {
		c.svc.warn(c.id, "write exit.json", err)
	}
}

// killRest ends what an init leaves behind where no pid namespace of its own
// makes the kernel do it.
func (c *container) killRest() {
	ctx, cancel := context.WithTimeout(context.Background(), effectTimeout)
	defer cancel()
	if err := c.runc.KillAll(ctx, "kill-rest", killSignal); err != nil {
		c.svc.warn(c.id, "kill what the init process left behind", err)
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

// process returns the folded state of a process that exists; init is "".
func (v *view) process(exec string) (lifecycle.ProcessState, bool) {
	p := v.Process(exec)
	return p, p.State != lifecycle.None
}
