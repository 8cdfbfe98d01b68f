package scene

import (
	"context"
	"fmt"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

// add adds an exec.
func (p *player) add(ctx context.Context, cfg harness.ExecConfig) (e *harness.Exec, err error) {
	err = p.step(cfg.ID, checker.OpExec, func(*checker.Call) error {
		e, err = p.c.AddExec(ctx, cfg)
		if p.Restarts && errdefs.IsAlreadyExists(err) {
			e, err = p.addAnew(ctx, cfg)
		}
		return err
	})
	if err == nil {
		p.execs[cfg.ID] = e
	}
	return e, err
}

// wait waits for the end of an exec, and of its output, which is to be want.
func (p *player) wait(ctx context.Context, e *harness.Exec, want string) error {
	if p.again[e.ID()] {
		if err := e.Load(ctx); err != nil {
			return err
		}
	}
	err := p.step(e.ID(), checker.OpWait, func(answer *checker.Call) error {
		exit, err := e.AwaitExit(ctx)
		answer.Status, answer.ExitedAt = exit.Code, exit.At
		return err
	})
	if err != nil {
		return err
	}
	if err := e.Streams.AwaitEnd(stepLimit); err != nil {
		return fmt.Errorf("exec %s of %s: %w", e.ID(), p.ID, err)
	}
	p.runs[e.ID()].Streams = []checker.Stream{{Name: "stdout", Want: want, Got: e.Stdout.String()}}
	return nil
}

func (p *player) remove(ctx context.Context, e *harness.Exec) error {
	defer delete(p.execs, e.ID())
	return p.step(e.ID(), checker.OpDelete, func(answer *checker.Call) error {
		exit, err := e.Delete(ctx)
		if err == nil {
			answer.Status, answer.ExitedAt = exit.ExitCode(), exit.ExitTime()
		}
		return err
	})
}

// exec runs an exec from its adding to its deletion.
func (p *player) exec(ctx context.Context, cfg harness.ExecConfig, code uint32, want string) error {
	p.run(cfg.ID, code)
	if cfg.Terminal {
		want = strings.ReplaceAll(want, "\n", "\r\n")
	}
	e, err := p.add(ctx, cfg)
	if err == nil {
		err = p.start(ctx, e.ID())
	}
	if err == nil && cfg.Stdin != nil {
		err = p.step(cfg.ID, checker.OpCloseIO, func(*checker.Call) error { return e.CloseIO(ctx, client.WithStdinCloser) })
	}
	if err == nil {
		err = p.wait(ctx, e, want)
	}
	if err != nil {
		return err
	}
	return p.remove(ctx, e)
}

// kill signals an exec, or the init where there is none.
func (p *player) kill(ctx context.Context, e *harness.Exec, signal syscall.Signal) error {
	exec := ""
	if e != nil {
		exec = e.ID()
	}
	return p.step(exec, checker.OpKill, func(answer *checker.Call) error {
		answer.Signal = int(signal)
		if e != nil {
			return e.Kill(ctx, signal)
		}
		return p.c.Task.Kill(ctx, signal)
	})
}

// state asks the shim for the init's state, which is to be as said.
func (p *player) state(ctx context.Context, want client.ProcessStatus) error {
	return p.step("", checker.OpState, func(answer *checker.Call) error {
		status, err := p.c.Task.Status(ctx)
		answer.State = string(status.Status)
		if err == nil && status.Status != want {
			return fmt.Errorf("it is %s, want %s", status.Status, want)
		}
		return err
	})
}

// end waits for the init's end, with one of the codes that its run was noted with, and deletes the task.
func (p *player) end(ctx context.Context, said string) error {
	if p.Terminal {
		said = strings.ReplaceAll(said, "\n", "\r\n")
	}
	err := p.step("", checker.OpWait, func(answer *checker.Call) error {
		exit, err := p.c.Wait(ctx)
		answer.Status, answer.ExitedAt = exit.Code, exit.At
		return err
	})
	if err == nil {
		err = p.c.CheckJournal(ctx)
	}
	if err == nil {
		err = p.step("", checker.OpDelete, func(answer *checker.Call) error {
			exit, err := p.c.Task.Delete(ctx)
			if err == nil {
				answer.Status, answer.ExitedAt = exit.ExitCode(), exit.ExitTime()
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	p.c.Task = nil
	p.runs[""].Streams = []checker.Stream{{Name: "stdout", Want: said, Got: p.c.Stdout.String()}}
	return nil
}
