package task

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

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

// review hands the held exits that are somebody's to their containers, and
// acknowledges those that are nobody's. It never waits for a container.
func (x *exits) review() {
	var nobodys []uint64
	ready := map[*container]struct{}{}
	x.mu.Lock()
	x.held = slices.DeleteFunc(x.held, func(e heldExit) bool {
		id, cl, known := x.claimed(e.Exit)
		switch {
		case known:
			cl.container.inbox.put(arrival{e.Exit, id, cl.exec})
			ready[cl.container] = struct{}{}
		case x.awaited(e):
			return false
		default:
			nobodys = append(nobodys, e.Seq)
		}
		return true
	})
	x.mu.Unlock()
	for c := range ready {
		go c.takeExits()
	}
	for _, seq := range nobodys {
		x.keeper.Acknowledge(seq)
	}
}

// awaited reports whether a command under way may bring up the process whose
// exit this is: it began before the exit came.
func (x *exits) awaited(e heldExit) bool {
	for began := range x.openings {
		if began < e.came {
			return true
		}
	}
	return false
}

// settled drops the claim of a process whose exit is journaled.
func (x *exits) settled(id lifecycle.Process, seq uint64) {
	x.mu.Lock()
	delete(x.claims, id)
	x.mu.Unlock()
	x.keeper.Acknowledge(seq)
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

// identify finds the start time of a process that runc has just brought up: from
// /proc, where it must be a child of the keeper (a stranger may have its pid by now),
// else from its exit. A held exit of that pid may be an earlier process's, which has
// waited since before this one had the pid: so the living one counts first, and then
// the exit that came last.
func (x *exits) identify(ctx context.Context, m Machine, pid, keeper int) (uint64, error) {
	for {
		x.mu.Lock()
		arrived := x.arrived
		x.mu.Unlock()
		start, err := m.ChildStartTime(pid, keeper)
		if err == nil {
			return start, nil
		}
		if start, ok := x.lastHeld(pid); ok {
			return start, nil
		}
		select {
		case <-arrived: // it is a zombie or reaped: its exit is on the way
		case <-ctx.Done():
			return 0, fmt.Errorf("neither alive nor reaped by the keeper: %w", err)
		}
	}
}

// lastHeld is the start time in the last held exit of a pid.
func (x *exits) lastHeld(pid int) (start uint64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range x.held {
		if e.Pid == pid {
			start, ok = e.Start, true
		}
	}
	return start, ok
}

// Exited takes one exit from the keeper; it is acknowledged once it is
// journaled or known to be nobody's. Called for each exit in order.
func (s *Service) Exited(e Exit) {
	s.idle.begin()
	defer s.idle.end()
	if !s.closed() {
		s.exits.arrive(e)
	}
}
