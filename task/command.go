package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"perdure/internal/crash"
	"perdure/store"
	"perdure/store/lifecycle"
)

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
	if c.bringsUp(cmd.op, cmd.exec) {
		defer c.svc.exits.opened()()
	} else {
		defer c.takeExits() // one may have waited for this start to be told
	}
	concluding, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(effectTimeout, c.runc.Limit(begun.IntentName())+time.Minute))
	defer cancel()
	effects := concluding // not ctx: they outlive the client's connection, a restarted containerd finds their outcome
	if deadline, ok := ctx.Deadline(); ok && cmd.dated {
		var end context.CancelFunc
		effects, end = context.WithDeadline(concluding, deadline)
		defer end()
	}
	pid := 0
	if err = crash.Fail(string(cmd.op), cmd.exec, crash.AfterIntent); err == nil {
		pid, err = cmd.effect(effects, begun)
	}
	crash.Here(string(cmd.op), cmd.exec, crash.AfterEffect)
	outcome := lifecycle.Record{Op: cmd.op, Exec: cmd.exec, Phase: lifecycle.Done, Intent: begun.Seq, Request: req.number}
	if err != nil {
		outcome = c.failed(concluding, outcome, err)
	} else if pid != 0 {
		outcome.Process = &lifecycle.Process{Pid: pid}
	}
	outcome, err = c.concludeCommand(concluding, outcome)
	if err != nil && !c.isGone() {
		// The effect is in the world and its outcome is not in the journal: that
		// is what recovery is for, and only the next worker can tell the client.
		c.svc.fail(fmt.Errorf("container %s: conclude %s: %w", c.id, cmd.op, err))
		select {
		case <-c.stopped:
		case <-ctx.Done():
		}
	}
	return outcome, err
}

// concludeCommand commits an outcome, and then lets the stdio go of a start that has failed. Not before: as long as the
// failure is not journaled, the next worker may find the start undone and begin it again, and the client's readers must
// not have seen the end of their fifos then.
func (c *container) concludeCommand(ctx context.Context, r lifecycle.Record) (lifecycle.Record, error) {
	if r.Op != lifecycle.OpStart || r.Phase != lifecycle.Failed || !c.bringsUp(r.Op, r.Exec) {
		return c.conclude(ctx, r)
	}
	defer c.streams.willClose(r.Exec)()
	r, err := c.conclude(ctx, r)
	if err != nil {
		return r, err
	}
	if err := c.closeStreams(r.Exec); err != nil {
		c.svc.warn(c.id, "let the stdio of a failed start go", err)
	}
	return r, nil
}

// failed is the outcome of an effect that ended with an error. Where user code
// may have run, or the container may have been thawed, the error proves nothing,
// and the same judgement is made that recovery would make of it. A pause that
// may have been half done is taken back.
func (c *container) failed(ctx context.Context, outcome lifecycle.Record, failure error) lifecycle.Record {
	intent, open := c.state().Open[outcome.Intent]
	launched := outcome.Op == lifecycle.OpStart && intent.Phase == lifecycle.Launched
	if open && (launched || outcome.Op == lifecycle.OpResume) {
		judged, err := c.judge(context.WithoutCancel(ctx), intent)
		switch {
		case err != nil:
			c.svc.warn(c.id, "judge a failed "+string(outcome.Op), err)
		case judged.Phase == lifecycle.Done:
			return judged
		case judged.Exit != nil:
			outcome = judged
			if why := failure.Error(); !strings.Contains(outcome.Error.Message, why) {
				outcome.Error.Message += ": " + why
			}
		}
	}
	if outcome.Op == lifecycle.OpPause {
		c.thaw()
	}
	if outcome.Exit != nil {
		return outcome
	}
	outcome.Phase, outcome.Error = lifecycle.Failed, journaledError(failure)
	return outcome
}

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
		var own bool
		alive := c.do(func() {
			seen = c.state()
			if earlier, ok := seen.Answers[req.number]; ok && req.replay && earlier.Op == cmd.op && earlier.Exec == cmd.exec {
				r = earlier
				return
			}
			if err = seen.recovering(req, cmd); err != nil {
				own = true
				return
			}
			if err = seen.Check(cmd.op, cmd.exec); err == nil {
				r, err = c.open(req, cmd)
			}
		})
		var busy *lifecycle.BusyError
		news := c.troubles.heard()
		switch {
		case !alive:
			return r, c.goneError()
		case !errors.As(err, &busy):
			return r, refusal(c.id, cmd.exec, err)
		}
		// What it has begun itself may be in the world: it is told how that ends, and nothing before.
		if why := c.troubles.of(busy.Open.Seq); why != nil && !own {
			return r, errorf(errdefs.ErrUnavailable, "container %s: %v, and cannot be settled yet, it is tried again: %v", c.id, busy, why)
		}
		select {
		case <-seen.changed:
		case <-news:
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
	before := crash.BeforeIntent
	if cmd.effect == nil {
		before = crash.BeforeOutcome
	}
	if err := crash.Fail(string(cmd.op), cmd.exec, before); err != nil {
		return r, err
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
		return c.goneError()
	}
	crash.Here(string(intent.Op), intent.Exec, crash.AfterLaunched)
	return err
}

// conclude completes an outcome record and commits it, with its events. It is
// the end of every command, whether this worker or a dead one began it.
func (c *container) conclude(ctx context.Context, r lifecycle.Record) (lifecycle.Record, error) {
	if r.Process != nil {
		start, err := c.svc.exits.identify(ctx, c.svc.Machine, r.Process.Pid, c.svc.KeeperPID)
		if err != nil {
			return r, fmt.Errorf("container %s: %s: identify process %d: %w", c.id, r.Op, r.Process.Pid, err)
		}
		r.Process.Start = start
		if r.Exec == "" {
			r.Cgroup = c.accounted(*r.Process)
		}
	}
	if err := crash.Fail(string(r.Op), r.Exec, crash.BeforeOutcome); err != nil {
		return r, err
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
			if err = c.commitExit(r.Exec, c.lost(c.state().Process(r.Exec)), r); err == nil && r.Exec == "" {
				go c.initLost()
			}
			return
		}
		var written []lifecycle.Record
		if written, err = c.commit(events, r); err == nil {
			r = written[0]
		}
	})
	if gone {
		err = c.goneError()
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
