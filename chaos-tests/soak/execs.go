package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/chaos-tests/checker"
)

// execRun is what is known of an exec that has run, or may have.
type execRun struct {
	checker.Run
	Counted bool // it has certainly run, and left its mark
}

// ran notes it, with the marks that it has left. One that may have been killed before its mark is not counted where there
// is none; two are two in any case.
func (l *life) ran(r execRun) {
	if l.ctx.Err() != nil {
		return
	}
	r.Starts = l.starts(r.Exec)
	if r.Starts == 0 && !r.Counted {
		r.Starts = checker.NotCounted
	}
	l.noteRun(r.Run)
}

// addRequest adds an exec.
func (l *life) addRequest(p *process, plan *execPlan) request {
	return request{op: checker.OpExec, exec: p.exec, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		spec := l.s.process
		spec.Terminal = p.terminal
		spec.Args = execArgs(p.exec, plan)
		any, err := typeurl.MarshalAny(&spec)
		if err != nil {
			return err
		}
		_, err = t.Exec(ctx, &tasks.ExecProcessRequest{
			ContainerID: l.slot.ID, ExecID: p.exec, Terminal: p.terminal,
			Stdin: p.fifos.Stdin, Stdout: p.fifos.Stdout, Stderr: p.fifos.Stderr,
			Spec: &anypb.Any{TypeUrl: any.GetTypeUrl(), Value: any.GetValue()},
		})
		return err
	}}
}

// add adds an exec, with streams that the one who was answered has.
func (l *life) add(id string, plan *execPlan) (*process, error) {
	p, err := l.attach(id, plan.Terminal, plan.Kind == execInput)
	if err != nil {
		return nil, err
	}
	a := l.settle(l.addRequest(p, plan), func(now answer) bool { return now.ok() })
	if !a.ok() {
		defer p.detach()
		return nil, errors.Join(refusedOr(l, a), l.ctx.Err())
	}
	return p, nil
}

// startExec starts an exec. Where runc was killed under it, it may have been started and lost; the answer has its trouble
// then.
func (l *life) startExec(exec string) answer {
	var met trouble
	var tries []answer
	for {
		a := l.ask(request{op: checker.OpStart, exec: exec, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
			r, err := t.Start(ctx, &tasks.StartRequest{ContainerID: l.slot.ID, ExecID: exec})
			if err == nil {
				c.Pid = int(r.Pid)
			}
			return err
		}})
		switch {
		case a.trouble != "":
			met = a.trouble
		case l.runcWasKilled(a):
			met = runcKilled
		}
		if a.ok() {
			l.happened(tries, answer{})
			a.trouble = met
			return a
		}
		if met == "" || l.ctx.Err() != nil {
			return a
		}
		tries = append(tries, a)
		if now := l.state(exec); now.State != checker.Created {
			l.happened(tries, now)
			a.err, a.trouble, a.Pid = nil, met, now.Pid
			return a
		}
		if a.trouble != containerdKilled && a.trouble != unsettled {
			l.happened(tries, answer{})
			return a
		}
		pause(l.ctx, retryPause)
	}
}

// runExec is one exec from its add to its delete.
func (l *life) runExec(id string, plan *execPlan) {
	l.pausing.RLock()
	held := true
	release := func() {
		if held {
			held = false
			l.pausing.RUnlock()
		}
	}
	defer release()
	p, err := l.add(id, plan)
	if err != nil {
		l.fail(err)
		return
	}
	defer p.detach()
	run := execRun{Run: checker.Run{Target: l.target(id), Statuses: execStatuses(plan)}}
	defer func() { l.ran(run) }()
	if plan.Kind != execUnused {
		exit := l.await(id)
		a := l.startExec(id)
		release()
		switch {
		case l.ctx.Err() != nil:
			return
		case plan.Kind == execMissing || !a.ok():
			if err := l.notStarted(plan, a, exit); err != nil {
				l.fail(err)
				return
			}
			run.Statuses = nil
		default:
			if err := l.follow(p, plan, a.trouble != "", exit, &run); err != nil {
				l.fail(err)
				return
			}
		}
	}
	if err := l.deleteExec(p, plan, &run); err != nil {
		l.fail(err)
	}
}

// notStarted judges the start of an exec that has failed: one whose program does not exist, or whose runc was killed. Where
// both is so what runc has forked is found, and told as the process, which then ends by itself.
func (l *life) notStarted(plan *execPlan, a answer, exit chan answer) error {
	switch {
	case !a.ok() && a.trouble == "" && plan.Kind != execMissing:
		return unexpected(a)
	case !a.ok():
		return nil
	case a.trouble == "":
		return fmt.Errorf("a program that does not exist was started: %s", a)
	}
	_, err := l.told(exit, a.Exec)
	return err
}

// follow is an exec from its start to its end.
func (l *life) follow(p *process, plan *execPlan, troubled bool, exit chan answer, run *execRun) error {
	gone := false
	if troubled {
		var err error
		if gone, err = l.neverRan(p.exec, exit); err != nil {
			return err
		}
		run.Unknowable = gone
	}
	if gone {
		run.Statuses = nil
	} else if err := l.drive(p, plan); err != nil {
		return err
	}
	a, err := l.told(exit, p.exec)
	if err != nil || l.ctx.Err() != nil {
		return err
	}
	if !a.ok() && !(gone && a.is(codes.FailedPrecondition)) {
		return unexpected(a)
	}
	run.Ended = true
	run.Counted = !gone
	return nil
}

// neverRan says of an exec whose start met trouble whether it has ended without having run, or is given up as lost.
func (l *life) neverRan(exec string, exit chan answer) (gone bool, err error) {
	err = l.until("exec "+exec+" to run or to end", func() error {
		select {
		case end := <-exit:
			gone = !end.ok() || end.Status == checker.UnknownStatus || l.starts(exec) == 0
			exit <- end
			return nil
		default:
		}
		if l.starts(exec) == 0 {
			return errors.New("it does not run")
		}
		return nil
	})
	return gone, err
}

// drive does what an exec needs of its client to come to its end.
func (l *life) drive(p *process, plan *execPlan) error {
	switch plan.Kind {
	case execInput:
		if err := p.feed(l.ctx, lines(plan.Lines, "\n")); err != nil {
			return fmt.Errorf("input of exec %s: %w", p.exec, err)
		}
		return l.closeIO(p.exec)
	case execSize:
		if err := l.resize(p.exec, plan.Rows); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(l.dir, p.exec), nil, 0o600)
	case execKilled:
		if err := l.ready(p, plan); err != nil {
			return err
		}
		return refusedOr(l, l.kill(p.exec, plan.Signal, false))
	}
	return nil
}

// ready waits until the process says that it is.
func (l *life) ready(p *process, plan *execPlan) error {
	return l.until("exec "+p.exec+" to say that it is ready", func() error {
		if got := p.out.String(); got != execText(plan) {
			return fmt.Errorf("it has said %q", got)
		}
		return nil
	})
}

// deleteExec deletes an exec, and then looks at what it has written.
func (l *life) deleteExec(p *process, plan *execPlan, run *execRun) error {
	times, id := 0, p.exec
	a := l.settle(request{op: checker.OpDelete, exec: id, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
		times++
		r, err := t.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: l.slot.ID, ExecID: id})
		if err == nil {
			c.Pid, c.Status, c.ExitedAt = int(r.Pid), r.ExitStatus, at(r.ExitedAt)
		}
		return err
	}}, func(now answer) bool { return now.State == "" })
	if !a.ok() && !(times > 1 && a.is(codes.NotFound)) {
		return refusedOr(l, a)
	}
	if !run.Ended || run.Unknowable {
		return nil // it was never started, or may not have been
	}
	if err := p.end(); err != nil {
		return err
	}
	run.Streams = l.streams(p, execText(plan))
	return nil
}

// leave starts an exec that is there when init ends.
func (l *life) leave(id string) {
	plan := &execPlan{Kind: execLeft}
	p, err := l.add(id, plan)
	if err != nil {
		l.fail(err)
		return
	}
	exit := l.await(id)
	a := l.startExec(id)
	if l.ctx.Err() == nil && a.ok() && a.trouble == "" {
		if err := l.ready(p, plan); err != nil {
			l.fail(err)
		}
	}
	l.lefts.Go(func() {
		defer p.detach()
		run := execRun{Run: checker.Run{Target: l.target(id), Statuses: execStatuses(plan)}}
		run.Unknowable = a.trouble != ""
		if a.ok() {
			if end, err := l.told(exit, id); err != nil {
				l.fail(err)
			} else if !end.ok() && a.trouble == "" {
				l.fail(unexpected(end))
			}
			run.Ended = true
		}
		l.ran(run)
	})
}
