//go:build crashpoints

package simulation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"syscall"

	"perdure/chaos-tests/checker"
	"perdure/runtime"
	"perdure/task"
)

// runc calls the fake runtime for one container.
type runc struct {
	hands
	config runtime.Config
}

// call is one process of the runtime, and the files that it leaves: it goes on to its end whether its worker lives or not.
type call struct {
	op, intent string
	ran        bool   // it was executed: its log is there
	pid        int    // in its pid file
	init       bool   // which is the init's
	failure    string // in its log
	class      error
	steps      []step
	over       bool
	done       chan struct{}
}

// step is a moment of a call; an error ends it.
type step struct {
	name string
	do   func() error
}

// runtimeError is what the runtime says, with the class that package runtime gives it.
type runtimeError struct {
	text  string
	class error
}

func (e runtimeError) Error() string { return e.text }
func (e runtimeError) Unwrap() error { return e.class }

var errKilled = fmt.Errorf("signal: killed")

// run makes a call and waits for it. What waits for a worker ends with the worker; the call does not.
func (r *runc) run(ctx context.Context, op, intent string, launched func() error, steps ...step) (*call, error) {
	m := r.machine()
	r.world.take(r.worker, "runtime "+op+" "+intent)
	if launched != nil {
		if err := launched(); err != nil {
			return nil, err
		}
		r.world.take(r.worker, "fork "+op)
	}
	c := &call{op: op, intent: intent, done: make(chan struct{})}
	c.steps = append([]step{{"is executed", func() error { c.ran = true; return nil }}}, steps...)
	if m.intents[r.config.ID] == nil {
		m.intents[r.config.ID] = map[string]*call{}
	}
	m.intents[r.config.ID][intent] = c
	r.world.faults.inject(m, c)
	m.proceed(c)
	select {
	case <-c.done:
	case <-ctx.Done():
		c.steps = nil
		c.over = true
		return c, fmt.Errorf("container %s: OCI runtime %s: %w", r.config.ID, op, ctx.Err())
	case <-r.killed:
		r.world.take(r.worker, "") // ends
	}
	r.world.take(r.worker, "runtime "+op+" has ended")
	if c.failure != "" {
		return c, r.LoggedError(intent, op)
	}
	if c.class == errKilled {
		return c, fmt.Errorf("container %s: OCI runtime %s: %w", r.config.ID, op, errKilled)
	}
	return c, nil
}

// proceed has the next step of a call wait for its turn.
func (m *machine) proceed(c *call) {
	if len(c.steps) == 0 {
		if !c.over {
			c.over = true
			close(c.done)
		}
		return
	}
	s := c.steps[0]
	m.world.add(&turn{class: classWorld, label: "runtime " + c.intent + " " + s.name, run: func() {
		if len(c.steps) == 0 {
			return // ended meanwhile
		}
		c.steps = c.steps[1:]
		if err := s.do(); err != nil {
			c.steps = nil
			if err == errKilled {
				c.class = err
			} else {
				c.failure = err.Error()
				c.class = errdefs.Resolve(err)
			}
		}
		m.proceed(c)
	}})
}

func (r *runc) container() *container { return r.machine().containers[r.config.ID] }

func (r *runc) target(exec string) checker.Target {
	return checker.Target{Container: r.config.ID, Life: r.world.lives[r.config.ID], Exec: exec}
}

func (r *runc) key() string { return r.config.ID + "@" + r.config.Instance }

// bring makes the init of a new container.
func (r *runc) bring() (*process, error) {
	m := r.machine()
	if r.container() != nil {
		return nil, runtimeError{"container with given ID already exists", errdefs.ErrAlreadyExists}
	}
	if !(channel{r.worker}).has("c/" + r.key() + "/init/stdout") {
		r.world.violation("the init is brought up before the keeper has its stdio")
	}
	g := &cgroup{name: r.key()}
	m.cgroups[g.name] = g
	c := &container{id: r.config.ID, cgroup: g, private: r.world.plan.Private}
	c.init = m.born(r.target(""), c)
	m.containers[c.id] = c
	return c.init, nil
}

func (r *runc) Create(ctx context.Context, intent string, _ task.IO, launched func() error) (int, error) {
	var c *call
	var p *process
	c, err := r.run(ctx, "create", intent, launched,
		step{"makes the container", func() (err error) {
			if p, err = r.bring(); err == nil {
				p.container.fifo = true
			}
			return err
		}},
		step{"writes the pid", func() error { r.wrote(intent, p, true); return nil }})
	if err != nil {
		return 0, err
	}
	return c.pid, nil
}

// wrote writes a pid file.
func (r *runc) wrote(intent string, p *process, init bool) {
	if c := r.machine().intents[r.config.ID][intent]; c != nil {
		c.pid, c.init = p.pid, init
	}
}

func (r *runc) Restore(ctx context.Context, intent string, image runtime.Image, _ task.IO, launched func() error) (int, error) {
	var p *process
	c, err := r.run(ctx, "restore", intent, launched,
		step{"restores the container", func() (err error) {
			if p, err = r.bring(); err == nil {
				r.machine().run(p)
			}
			return err
		}},
		step{"writes the pid", func() error { r.wrote(intent, p, true); return nil }})
	if err != nil {
		return 0, err
	}
	return c.pid, nil
}

func (r *runc) Start(ctx context.Context, intent string) error {
	_, err := r.run(ctx, "start", intent, nil, step{"lets the init run", func() error {
		switch c := r.container(); {
		case c == nil:
			return runtimeError{"container does not exist", errdefs.ErrNotFound}
		case c.init.ended:
			return runtimeError{"cannot start a container that has stopped", errdefs.ErrFailedPrecondition}
		case !c.fifo:
			return runtimeError{"cannot start an already running container", errdefs.ErrFailedPrecondition}
		default:
			c.fifo = false
			r.machine().run(c.init)
		}
		return nil
	}})
	return err
}

func (r *runc) Exec(ctx context.Context, intent string, process []byte, _ task.IO, launched func() error) (int, error) {
	exec := execOf(process)
	var p *simProcess
	c, err := r.run(ctx, "exec", intent, launched,
		step{"starts the process", func() error {
			if !(channel{r.worker}).has("c/" + r.key() + "/exec/" + exec + "/stdout") {
				r.world.violation("exec %s is started before the keeper has its stdio", exec)
			}
			switch c := r.container(); {
			case c == nil:
				return runtimeError{"container does not exist", errdefs.ErrNotFound}
			case c.status() != checker.Running:
				return runtimeError{"cannot exec in a " + c.status() + " container", errdefs.ErrFailedPrecondition}
			default:
				p = r.machine().born(r.target(exec), c)
				r.machine().run(p)
			}
			return nil
		}},
		step{"writes the pid", func() error { r.wrote(intent, p, false); return nil }})
	if err != nil {
		return 0, err
	}
	return c.pid, nil
}

type simProcess = process

func (r *runc) signal(ctx context.Context, intent string, signal int, all bool) error {
	_, err := r.run(ctx, "kill", intent, nil, step{fmt.Sprintf("sends %d", signal), func() error {
		c := r.container()
		switch {
		case c == nil:
			return runtimeError{"container does not exist", errdefs.ErrNotFound}
		case c.init.ended && !all:
			return runtimeError{"container not running", errdefs.ErrNotFound}
		}
		hit := false
		for _, p := range r.machine().processes {
			if p.container == c && !p.ended && (all || p == c.init) {
				hit = true
				r.machine().end(p, syscall.WaitStatus(signal))
			}
		}
		if !hit {
			return runtimeError{"no such process", errdefs.ErrNotFound}
		}
		return nil
	}})
	return err
}

func (r *runc) Kill(ctx context.Context, intent string, signal int) error {
	return r.signal(ctx, intent, signal, false)
}

func (r *runc) KillAll(ctx context.Context, intent string, signal int) error {
	return r.signal(ctx, intent, signal, true)
}

// freeze is a step of pause and resume.
func (r *runc) freeze(frozen bool, want, refusal string) step {
	name := "thaws"
	if frozen {
		name = "freezes"
	}
	return step{name, func() error {
		c := r.container()
		switch {
		case c == nil:
			return runtimeError{"container does not exist", errdefs.ErrNotFound}
		case c.status() != want:
			return runtimeError{refusal, errdefs.ErrFailedPrecondition}
		case frozen:
			c.frozen = true
		default:
			r.machine().thaw(c)
		}
		return nil
	}}
}

func (r *runc) Pause(ctx context.Context, intent string) error {
	_, err := r.run(ctx, "pause", intent, nil, r.freeze(true, checker.Running, "container not running"))
	return err
}

func (r *runc) Resume(ctx context.Context, intent string) error {
	_, err := r.run(ctx, "resume", intent, nil, r.freeze(false, checker.Paused, "container not paused"))
	return err
}

func (r *runc) Update(ctx context.Context, intent string, _ *specs.LinuxResources) error {
	_, err := r.run(ctx, "update", intent, nil, step{"changes the limits", func() error {
		c := r.container()
		if c == nil || c.init.ended {
			return runtimeError{"container not running", errdefs.ErrFailedPrecondition}
		}
		c.limits = intent
		return nil
	}})
	return err
}

func (r *runc) Checkpoint(ctx context.Context, intent string, o runtime.CheckpointOptions) error {
	var dumped *container
	_, err := r.run(ctx, "checkpoint", intent, nil,
		step{"dumps", func() error {
			c := r.container()
			if c == nil || c.init.ended {
				return runtimeError{"container not running", errdefs.ErrFailedPrecondition}
			}
			dumped = c
			r.machine().images[o.ImagePath] = time.Now()
			return nil
		}},
		step{"ends the container", func() error {
			if o.Exit {
				r.machine().thaw(dumped)
				r.machine().end(dumped.init, killed)
			}
			return nil
		}})
	return err
}

func (r *runc) Delete(ctx context.Context, intent string, force bool) error {
	_, err := r.run(ctx, "delete", intent, nil,
		step{"kills", func() error {
			c := r.container()
			if c == nil {
				return nil
			}
			r.machine().thaw(c)
			for _, p := range r.machine().processes {
				if p.container == c {
					r.machine().end(p, killed)
				}
			}
			return nil
		}},
		step{"removes", func() error {
			if c := r.container(); c != nil {
				c.cgroup.gone = true
				c.cgroup.watched = c.cgroup.watched && r.world.alive() && r.world.worker.serving // else nobody can have looked at the last
				delete(r.machine().containers, r.config.ID)
			}
			return nil
		}})
	return err
}

func (r *runc) Limit(string) time.Duration { return time.Minute }

func (r *runc) files(intent string) *call {
	return r.machine().intents[r.config.ID][intent]
}

func (r *runc) Clean(intent string) {
	if c := r.files(intent); c != nil && !r.isDead() {
		if c.init {
			c.ran, c.failure = false, ""
		} else {
			delete(r.machine().intents[r.config.ID], intent)
		}
	}
}

func (r *runc) CleanAll() {
	if !r.isDead() {
		delete(r.machine().intents, r.config.ID)
	}
}

func (r *runc) WaitOrphans(ctx context.Context, intent string) error {
	r.world.take(r.worker, "wait for "+intent)
	c := r.files(intent)
	if c == nil || c.over {
		return nil
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		c.steps, c.over = nil, true
	case <-r.killed:
		r.world.take(r.worker, "") // ends
	}
	return nil
}

func (r *runc) Ran(intent string) bool {
	c := r.files(intent)
	return c != nil && c.ran
}

func (r *runc) PidFile(intent string) (int, bool) {
	c := r.files(intent)
	if c == nil {
		return 0, false
	}
	return c.pid, c.pid != 0
}

func (r *runc) IntentError(intent string) (string, bool) {
	c := r.files(intent)
	if c == nil {
		return "", false
	}
	return c.failure, c.failure != ""
}

func (r *runc) LoggedError(intent, op string) error {
	c := r.files(intent)
	if c == nil || c.failure == "" {
		return nil
	}
	err := fmt.Errorf("container %s: OCI runtime %s failed: %s", r.config.ID, op, c.failure)
	if c.class != nil {
		return fmt.Errorf("%w: %w", err, c.class)
	}
	return err
}

func (r *runc) CheckpointError(intent string, _ runtime.CheckpointOptions) error {
	return r.LoggedError(intent, "checkpoint")
}

func (r *runc) RestoreError(intent string, _ runtime.Image) error {
	return r.LoggedError(intent, "restore")
}

func (r *runc) FindProcess(_ runtime.Descriptors, prefix string) (int, bool) {
	_, exec, _ := strings.Cut(prefix, "/exec/")
	if p := r.machine().of(r.target(exec)); p != nil && p.starts > 0 {
		return p.pid, true
	}
	return 0, false
}

func (r *runc) State(context.Context) (runtime.Status, error) {
	r.world.take(r.worker, "ask the runtime for its state")
	c := r.container()
	if c == nil {
		return runtime.Status{}, fmt.Errorf("container does not exist: %w", errdefs.ErrNotFound)
	}
	return runtime.Status{Status: c.status(), Pid: c.init.pid}, nil
}

func (r *runc) Unstarted() bool {
	c := r.container()
	return c != nil && c.fifo
}

// A signal of the simulation's environment.
var _ = unix.SIGKILL
