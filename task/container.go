package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"

	"perdure/internal/crash"
	"perdure/runtime"
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
	runc     *runtime.Runc
	outbox   *outbox

	mailbox chan func()
	stopped chan struct{} // closed when the container is gone: nothing is decided any more
	adopted chan struct{} // closed when recovery is through
	view    atomic.Pointer[view]
	streams streams
	inbox   inbox
	oom     oom
	sweep   sweep

	troubles trouble // of re-adoption

	ending sync.Once
	giveUp chan struct{} // closed by End: a create under way is to stop

	departing sync.Mutex
	gone      bool // departed: nothing is left to be published or let go
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
		runc:     s.runtime(meta, params.Options),
		mailbox:  make(chan func()),
		stopped:  make(chan struct{}),
		adopted:  make(chan struct{}),
		giveUp:   make(chan struct{}),
		troubles: trouble{first: make(chan struct{})},
		streams:  streams{io: map[string]*runtime.IO{}},
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
		events = append(events, c.exitEvent("", next.Init))
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

// command runs one operation of a client: intent, effect, outcome. A request
// that was answered in the journal is answered from it, and has no effect.
type command struct {
	op     lifecycle.Op
	exec   string // "" is the init process
	params any
	// effect changes the world; the pid it returns is that of a process it
	// brought up, or 0. It runs outside the actor with a deadline of its own.
	// An operation without effect is its outcome: one record, no intent.
	effect func(ctx context.Context, intent lifecycle.Record) (pid int, err error)
	// dated effects end with the deadline of their client, who takes them for
	// failed then; the others go on to their end.
	dated bool
	limit time.Duration // of the effect, where it is more than effectTimeout
}

// run has the effect. It outlives the client's connection: a restarted
// containerd finds its outcome.
func (cmd command) run(client, ctx context.Context, intent lifecycle.Record) (pid int, err error) {
	if deadline, ok := client.Deadline(); ok && cmd.dated {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	return cmd.effect(ctx, intent)
}

// run executes a command and decodes its answer into answer, if not nil.
func (c *container) run(ctx context.Context, cmd command, answer any) error {
	req := requestOf(ctx)
	defer c.svc.track(req.number, c)()
	c.journal.Forget(req.oldest)
	outcome, err := c.decide(ctx, req, cmd)
	if err != nil {
		return err
	}
	if outcome.Error != nil {
		return answeredError(outcome.Error)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(outcome.Answer, answer); err != nil {
		return fmt.Errorf("container %s: %s: read the journaled answer: %w", c.id, cmd.op, err)
	}
	return nil
}

// decide returns the outcome record of a command: journaled before, or made now.
func (c *container) decide(ctx context.Context, req request, cmd command) (lifecycle.Record, error) {
	begun, err := c.begin(ctx, req, cmd)
	if err != nil || begun.Phase != lifecycle.Intent {
		return begun, err // refused, answered before, or without effect
	}
	crash.Here(string(cmd.op), cmd.exec, crash.AfterIntent)
	if c.bringsUp(cmd.op, cmd.exec) {
		defer c.svc.exits.opened()()
	} else {
		defer c.takeExits() // one may have waited for this start to be told
	}
	concluding, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(cmd.limit, effectTimeout))
	defer cancel()
	pid, err := cmd.run(ctx, concluding, begun)
	crash.Here(string(cmd.op), cmd.exec, crash.AfterEffect)
	outcome := lifecycle.Record{Op: cmd.op, Exec: cmd.exec, Phase: lifecycle.Done, Intent: begun.Seq, Request: req.number}
	if err != nil {
		outcome = c.failed(concluding, outcome, err)
	} else if pid != 0 {
		outcome.Process = &lifecycle.Process{Pid: pid}
	}
	outcome, err = c.conclude(concluding, outcome)
	if err != nil && !c.isGone() {
		// The effect is in the world and its outcome is not in the journal: that
		// is what recovery is for.
		c.svc.fail(fmt.Errorf("container %s: conclude %s: %w", c.id, cmd.op, err))
	}
	return outcome, err
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

// failed is the outcome of an effect that ended with an error. If user code may
// have run, the error proves nothing, and the same judgement is made that
// recovery would make of it.
func (c *container) failed(ctx context.Context, outcome lifecycle.Record, failure error) lifecycle.Record {
	intent, open := c.state().Open[outcome.Intent]
	if outcome.Op == lifecycle.OpStart && open && intent.Phase == lifecycle.Launched {
		judged, err := c.judge(context.WithoutCancel(ctx), intent)
		switch {
		case err != nil:
			c.svc.warn(c.id, "judge a failed start", err)
		case judged.Phase == lifecycle.Done:
			return judged
		case judged.Exit != nil:
			outcome = judged
		}
	}
	switch {
	case outcome.Op == lifecycle.OpStart && c.bringsUp(outcome.Op, outcome.Exec):
		if err := c.closeStreams(outcome.Exec); err != nil {
			c.svc.warn(c.id, "let the stdio of a failed start go", err)
		}
	case outcome.Op == lifecycle.OpPause:
		c.thaw()
	}
	if outcome.Exit != nil {
		return outcome
	}
	outcome.Phase, outcome.Error = lifecycle.Failed, journaledError(failure)
	return outcome
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

// effectTimeout bounds an effect as a whole; each runc call has a deadline of
// its own below it.
const effectTimeout = 2 * time.Minute

// begin commits the intent of a command, or its outcome where it has no effect.
// It waits for an open intent that excludes the command; a replayed request
// gets the outcome that the journal has.
func (c *container) begin(ctx context.Context, req request, cmd command) (lifecycle.Record, error) {
	for {
		var r lifecycle.Record
		var err error
		var seen *view
		alive := c.do(func() {
			seen = c.state()
			if earlier, ok := seen.Answers[req.number]; ok && req.replay && earlier.Op == cmd.op && earlier.Exec == cmd.exec {
				r = earlier
				return
			}
			if err = seen.recovering(req, cmd); err != nil {
				return
			}
			if err = seen.Check(cmd.op, cmd.exec); err == nil {
				r, err = c.open(req, cmd)
			}
		})
		var busy *lifecycle.BusyError
		switch {
		case !alive:
			return r, errorf(errdefs.ErrNotFound, "container %s: the task is deleted", c.id)
		case !errors.As(err, &busy):
			return r, refusal(c.id, cmd.exec, err)
		}
		select {
		case <-seen.changed:
		case <-ctx.Done():
			return r, errorf(errdefs.ErrUnavailable, "container %s: %v", c.id, busy)
		}
	}
}

// recovering is a BusyError where recovery still settles what an earlier worker
// began for this very request.
func (v *view) recovering(req request, cmd command) error {
	for _, open := range v.Open {
		if req.replay && open.Request == req.number && open.Op == cmd.op && open.Exec == cmd.exec {
			return &lifecycle.BusyError{Target: lifecycle.Target{Op: cmd.op, Exec: cmd.exec}, Open: open}
		}
	}
	return nil
}

// open writes the first record of a command. Only the actor calls it.
func (c *container) open(req request, cmd command) (lifecycle.Record, error) {
	r := lifecycle.Record{Op: cmd.op, Phase: lifecycle.Intent, Exec: cmd.exec, Request: req.number, At: c.svc.Now()}
	var events []store.Event
	var err error
	if cmd.params != nil {
		if r.Params, err = json.Marshal(cmd.params); err != nil {
			return r, fmt.Errorf("container %s: %s: %w", c.id, cmd.op, err)
		}
	}
	if cmd.effect == nil {
		r.Phase = lifecycle.Done
		if r.Answer, events, err = c.tell(r); err != nil {
			return r, err
		}
	}
	written, err := c.commit(events, r)
	if err != nil {
		return r, err
	}
	if cmd.effect == nil {
		crash.Here(string(cmd.op), cmd.exec, crash.AfterOutcome)
	}
	return written[0], nil
}

// launched commits that user code may run from here on: a new worker that
// finds the mark never starts the process again.
func (c *container) launched(intent lifecycle.Record) error {
	var err error
	gone := !c.do(func() {
		_, err = c.commit(nil, lifecycle.Record{
			Op: intent.Op, Phase: lifecycle.Launched, Exec: intent.Exec, Intent: intent.Seq, At: c.svc.Now(),
		})
	})
	if gone {
		return errorf(errdefs.ErrNotFound, "container %s: the task is deleted", c.id)
	}
	crash.Here(string(intent.Op), intent.Exec, crash.AfterLaunched)
	return err
}

// conclude completes an outcome record and commits it, with its events. It is
// the end of every command, whether this worker or a dead one began it.
func (c *container) conclude(ctx context.Context, r lifecycle.Record) (lifecycle.Record, error) {
	if r.Process != nil {
		start, err := c.svc.exits.identify(ctx, r.Process.Pid, c.svc.KeeperPID)
		if err != nil {
			return r, fmt.Errorf("container %s: %s: identify process %d: %w", c.id, r.Op, r.Process.Pid, err)
		}
		r.Process.Start = start
		if r.Exec == "" {
			r.Cgroup = c.accounted(*r.Process)
		}
	}
	var err error
	gone := !c.do(func() {
		var events []store.Event
		if r.Phase == lifecycle.Done {
			if r.Answer, events, err = c.tell(r); err != nil {
				return
			}
		}
		r.At = c.svc.Now()
		if lost := r.Exit != nil; lost {
			r.Exit = nil
			err = c.commitExit(r.Exec, c.lost(c.state().Process(r.Exec)), r)
			return
		}
		var written []lifecycle.Record
		if written, err = c.commit(events, r); err == nil {
			r = written[0]
		}
	})
	if gone {
		err = errorf(errdefs.ErrNotFound, "container %s: the task is deleted", c.id)
	}
	if err != nil {
		return r, err
	}
	crash.Here(string(r.Op), r.Exec, crash.AfterOutcome)
	c.runc.Clean(r.IntentName())
	if r.Process != nil {
		c.svc.exits.claim(c, r.Exec, *r.Process)
	}
	if r.Exec == "" && (r.Op == lifecycle.OpCreate || r.Op == lifecycle.OpStart) {
		c.oomHeard() // there may be one that was not watched for yet, or had to wait
	}
	return r, nil
}

// process returns the folded state of a process that exists; init is "".
func (v *view) process(exec string) (lifecycle.ProcessState, bool) {
	p := v.Process(exec)
	return p, p.State != lifecycle.None
}
