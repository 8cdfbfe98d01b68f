package task

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"perdure/store"
	"perdure/store/lifecycle"
)

// container is one task: a journal, and an actor that decides what is written
// to it. The plain fields are set once, before the actor starts.
type container struct {
	svc      *Service
	id       string
	instance string // the number of the create request: tells two lives of one id apart
	params   createParams
	journal  *store.Journal
	runc     Runtime
	outbox   *outbox

	mailbox chan func()
	stopped chan struct{} // closed when the container is gone, or the worker: nothing is decided any more
	adopted chan struct{} // closed when recovery is through
	view    atomic.Pointer[view]
	streams streams
	inbox   inbox
	oom     oom
	sweep   sweep

	troubles troubles // of re-adoption

	ending sync.Once
	giveUp chan struct{} // closed by End: a create under way is to stop

	vanishing sync.Once

	departing turn
	gone      bool // departed: nothing is left to be published or let go

	halting sync.Once // of closing stopped
}

// turn is a lock for what may take its time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// take waits for its turn; what it returns ends that.
func (t turn) take() (end func()) {
	t <- struct{}{}
	return func() { <-t }
}

// view is what readers see: immutable, replaced after each commit.
type view struct {
	*lifecycle.Container
	changed chan struct{} // closed when a newer view exists
	next    *view         // that one, set before changed is closed
}

func newContainer(s *Service, journal *store.Journal, params createParams) *container {
	meta := journal.Meta()
	c := &container{
		svc: s, id: meta.ID, instance: meta.Instance, params: params, journal: journal,
		runc:      s.runtime(meta, params),
		mailbox:   make(chan func()),
		stopped:   make(chan struct{}),
		adopted:   make(chan struct{}),
		giveUp:    make(chan struct{}),
		departing: newTurn(),
		inbox:     inbox{taking: newTurn()},
		troubles:  troubles{why: map[uint64]error{}, news: make(chan struct{})},
		streams:   streams{io: map[string]IO{}},
	}
	c.view.Store(&view{Container: journal.State(), changed: make(chan struct{})})
	c.outbox = newOutbox(s, meta.Namespace, meta.ID, journal)
	c.followLog()
	go c.actor()
	return c
}

// key is the prefix of everything the keeper stores for this container.
func (c *container) key() string { return keeperKey(c.id, c.instance) }

func keeperKey(id, instance string) string { return "c/" + id + "@" + instance }

func (c *container) state() *view { return c.view.Load() }

// actor runs decisions one after the other until the container is gone.
func (c *container) actor() {
	for {
		select {
		case decide := <-c.mailbox:
			decide()
		case <-c.stopped:
			c.unwatchOOM()
			return
		}
	}
}

// stop ends the actor.
func (c *container) stop() { c.halting.Do(func() { close(c.stopped) }) }

// do runs a decision in the actor and returns when it is taken; false when the
// container is gone.
func (c *container) do(decide func()) bool {
	done := make(chan struct{})
	select {
	case c.mailbox <- func() { defer close(done); decide() }:
		<-done
		return true
	case <-c.stopped:
		return false
	}
}

// commit writes records and events in one transaction and shows the new state.
// The init's exit event joins the transaction that makes it tellable. Only the
// actor calls it.
func (c *container) commit(events []store.Event, records ...lifecycle.Record) ([]lifecycle.Record, error) {
	before := c.state()
	next := before.Container
	for _, r := range records {
		var err error
		if next, err = next.Apply(next.Stamp(r)); err != nil {
			return nil, fmt.Errorf("container %s: %w", c.id, err)
		}
	}
	if next.InitExitTold() && !before.InitExitTold() {
		events = append(events, exitEvent(c.id, "", next.Init))
	}
	written, state, err := c.journal.Commit(records, events)
	if err != nil {
		return nil, fmt.Errorf("container %s: write journal: %w", c.id, err)
	}
	debugRecords(c.id, written)
	before.next = &view{Container: state, changed: make(chan struct{})}
	c.view.Store(before.next)
	close(before.changed)
	if len(events) > 0 {
		c.outbox.kick()
	}
	return written, nil
}

// isGone reports whether the container has been taken out.
func (c *container) isGone() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// bringsUp reports whether an operation starts a process nobody knows yet.
func (c *container) bringsUp(op lifecycle.Op, exec string) bool {
	if exec != "" {
		return op == lifecycle.OpStart
	}
	return op == c.initOp()
}

// initOp is what brings the init up: its create, or its start where it is
// restored from a checkpoint.
func (c *container) initOp() lifecycle.Op {
	if c.restores() {
		return lifecycle.OpStart
	}
	return lifecycle.OpCreate
}

func (c *container) restores() bool { return c.params.Image != nil }

// execIDs lists the execs, in an order that is the same in every run.
func (v *view) execIDs() []string { return slices.Sorted(maps.Keys(v.Execs)) }

// process returns the folded state of a process that exists; init is "".
func (v *view) process(exec string) (lifecycle.ProcessState, bool) {
	p := v.Process(exec)
	return p, p.State != lifecycle.None
}
