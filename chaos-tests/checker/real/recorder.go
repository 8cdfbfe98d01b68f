package real

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

// Recorder notes what clients of one harness ask for and are answered. Its methods may be called from many goroutines.
type Recorder struct {
	h    *harness.Harness
	tick atomic.Uint64

	mu      sync.Mutex
	history checker.History
	dying   map[checker.Target]bool // lives whose keeper may be killed
}

// NewRecorder returns one for the containers of h.
func NewRecorder(h *harness.Harness) *Recorder {
	return &Recorder{h: h, dying: map[checker.Target]bool{}}
}

// Ask makes a call and notes it. The answer that ask fills in counts where there is no error.
func (r *Recorder) Ask(of checker.Target, op checker.Op, ask func(answer *checker.Call) error) error {
	call := checker.Call{Target: of, Op: op, Began: r.tick.Add(1)}
	err := ask(&call)
	call.Ended, call.Code = r.tick.Add(1), Code(err)
	if err != nil {
		call.Message = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// containerd asks for the state after a start, and says "not found" where the shim has gone since: the start may have
	// been answered.
	of.Exec = ""
	if op == checker.OpStart && call.Code == checker.NotFound && r.dying[of] {
		call.Code = checker.Unanswered
	}
	r.history.Calls = append(r.history.Calls, call)
	return err
}

// Note adds what really became of a process.
func (r *Recorder) Note(run checker.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history.Runs = append(r.history.Runs, run)
}

// Create creates a container and its task.
func (r *Recorder) Create(ctx context.Context, of checker.Target, cfg harness.Config) (c *harness.Container, err error) {
	err = r.Ask(of, checker.OpCreate, func(answer *checker.Call) error {
		if c, err = r.h.Create(ctx, of.Container, cfg); err == nil {
			answer.Pid = int(c.Task.Pid())
		}
		return err
	})
	return c, err
}

// Start starts the task's init.
func (r *Recorder) Start(ctx context.Context, of checker.Target, c *harness.Container) error {
	return r.Ask(of, checker.OpStart, func(*checker.Call) error { return c.Task.Start(ctx) })
}

// Exec adds an exec and starts it.
func (r *Recorder) Exec(ctx context.Context, of checker.Target, c *harness.Container, cfg harness.ExecConfig) (e *harness.Exec, err error) {
	of.Exec = cfg.ID
	err = r.Ask(of, checker.OpExec, func(*checker.Call) error {
		e, err = c.AddExec(ctx, cfg)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e, r.Ask(of, checker.OpStart, func(answer *checker.Call) error {
		err := e.Start(ctx)
		if err == nil {
			answer.Pid = int(e.Pid())
		}
		return err
	})
}

// Finish waits for an exec's end and deletes it.
func (r *Recorder) Finish(ctx context.Context, of checker.Target, e *harness.Exec) error {
	of.Exec = e.ID()
	err := r.Ask(of, checker.OpWait, func(answer *checker.Call) error {
		exit, err := e.AwaitExit(ctx)
		answer.Status, answer.ExitedAt = exit.Code, exit.At
		return err
	})
	if err != nil {
		return err
	}
	return r.Ask(of, checker.OpDelete, func(answer *checker.Call) error {
		exit, err := e.Delete(ctx)
		if err == nil {
			answer.Status, answer.ExitedAt = exit.ExitCode(), exit.ExitTime()
		}
		return err
	})
}

// Pause freezes the container.
func (r *Recorder) Pause(ctx context.Context, of checker.Target, c *harness.Container) error {
	return r.Ask(of, checker.OpPause, func(*checker.Call) error { return c.Task.Pause(ctx) })
}

// Wait waits for the init's end.
func (r *Recorder) Wait(ctx context.Context, of checker.Target, c *harness.Container) error {
	return r.Ask(of, checker.OpWait, func(answer *checker.Call) error {
		exit, err := c.Wait(ctx)
		answer.Status, answer.ExitedAt = exit.Code, exit.At
		return err
	})
}

// State asks for the init's state.
func (r *Recorder) State(ctx context.Context, of checker.Target, c *harness.Container) error {
	return r.Ask(of, checker.OpState, func(answer *checker.Call) error {
		status, err := c.Task.Status(ctx)
		answer.State = string(status.Status)
		if status.Status == client.Stopped {
			answer.Status, answer.ExitedAt = status.ExitStatus, status.ExitTime
		}
		return err
	})
}

// Delete deletes the task, which has ended.
func (r *Recorder) Delete(ctx context.Context, of checker.Target, c *harness.Container) error {
	return r.Ask(of, checker.OpDelete, func(answer *checker.Call) error {
		exit, err := c.Task.Delete(ctx)
		if err == nil {
			answer.Status, answer.ExitedAt = exit.ExitCode(), exit.ExitTime()
		}
		return err
	})
}

// Dying notes that the keeper of a life may be killed from now on, which has containerd delete the task by itself.
func (r *Recorder) Dying(of checker.Target) {
	r.mu.Lock()
	r.dying[of] = true
	r.mu.Unlock()
	_ = r.Ask(of, checker.OpDelete, func(*checker.Call) error { return context.DeadlineExceeded })
}

// Over returns the history of containers that are through: every event that is to arrive has arrived.
func (r *Recorder) Over(containers ...string) (checker.History, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.history
	h.Over = true
	for _, container := range containers {
		recorded, err := r.h.Events.Of(container)
		if err != nil {
			return h, err
		}
		// Events have no tick of the calls' clock: all are noted as of the end, so that no rule takes them for earlier.
		h.Events = append(h.Events, Events(recorded, r.tick.Add(uint64(len(recorded)+1)))...)
	}
	return h, nil
}
