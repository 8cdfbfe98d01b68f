package task

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

// idle notices that a worker has had nothing to do for a while. A worker that
// leaves then costs a pod nothing but the keeper; the keeper starts the next
// one with the next call, exit or input, on the same path as after a crash.
type idle struct {
	after time.Duration
	check func() bool // whether the worker is to leave; nothing begins meanwhile

	mu      sync.Mutex
	active  int // calls under way, but for Wait
	timer   *time.Timer
	leaving bool
	never   chan struct{} // closed with the service, else nothing happens on it
}

// begin and end surround everything that keeps a worker up. Once the worker is
// leaving, nothing begins any more: what it was to do, and would not have told
// to the end, stays with the keeper for the next one.
func (i *idle) begin() { i.beginIf(func() bool { return true }) }

// beginIf is begin where it is needed. What is found not to be does not keep the
// worker up, and nothing decides between the look and the beginning.
func (i *idle) beginIf(needed func() bool) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.leaving {
		i.mu.Unlock()
		<-i.never
		i.mu.Lock()
	}
	if !needed() {
		return false
	}
	i.active++
	if i.timer != nil {
		i.timer.Stop()
	}
	return true
}

func (i *idle) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.active--; i.active == 0 {
		i.arm()
	}
}

func (i *idle) arm() {
	if i.after <= 0 || i.leaving {
		return
	}
	if i.timer == nil {
		i.timer = time.AfterFunc(i.after, i.expired)
		return
	}
	i.timer.Reset(i.after)
}

// expired looks again later where the worker is still needed.
func (i *idle) expired() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.active > 0 || i.leaving {
		return
	}
	if i.leaving = i.check(); !i.leaving {
		i.arm()
	}
}

// Resting is closed when the worker has had nothing to do for Config.Idle and
// the keeper watches all that could need it. It is not closed where Idle is 0.
func (s *Service) Resting() <-chan struct{} { return s.resting }

// rest closes resting if nothing is left to a worker, and reports that. What
// comes after the look is the keeper's: a call is handed to the next worker,
// input wakes one.
func (s *Service) rest() bool {
	s.mu.Lock()
	busy := len(s.creating)+len(s.departed)+len(s.broken) > 0
	busy = busy || s.wanted && len(s.containers) == 0 // the keeper is to be asked again to leave
	containers := slices.Collect(maps.Values(s.containers))
	s.mu.Unlock()
	if busy || !s.exits.quiet() {
		return false
	}
	var watch []mark
	for _, c := range containers {
		names, ok := c.atRest()
		if !ok {
			return false
		}
		watch = append(watch, names...)
	}
	for _, m := range watch {
		s.Keeper.Wake(m.name, m.events)
	}
	close(s.resting)
	return true
}

// mark is a descriptor of the keeper's that wakes a worker, and for what.
type mark struct {
	name   string
	events uint32
}

// atRest reports whether a container needs no worker, and what could change that.
func (c *container) atRest() (watch []mark, ok bool) {
	select {
	case <-c.adopted:
	default:
		return nil, false
	}
	v := c.state()
	if len(v.Open)+len(c.inbox.list()) > 0 || v.Init.State == lifecycle.None || v.Init.State == lifecycle.Deleted {
		return nil, false
	}
	past, cancel := context.WithCancel(context.Background())
	cancel()
	if c.outbox.drained(past) != nil {
		return nil, false
	}
	names, ok := c.streams.rest()
	for _, name := range names {
		watch = append(watch, mark{name, unix.EPOLLIN})
	}
	if w := c.oom.watch.Load(); w != nil && v.Check(lifecycle.OpOOM, "") == nil {
		if c.oom.noisy(c.svc.Now()) {
			return nil, false
		}
		name, events := w.Wake()
		watch = append(watch, mark{name, events})
	}
	return watch, ok
}

// quiet reports whether no exit is held and no process is coming up.
func (x *exits) quiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.held)+len(x.openings) == 0
}

// rest collects what all streams of a container need watched.
func (s *streams) rest() (watch []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, io := range s.io {
		names, ok := io.Rest()
		if !ok {
			return nil, false
		}
		watch = append(watch, names...)
	}
	return watch, true
}
