// Package scene has short lives of containers that together pass every crash point of the worker, and judges each of
// them by what its clients saw (package checker). It does not know which points are armed.
package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/checker/real"
	"perdure/chaos-tests/harness"
)

// Scene is one life of one container, with a shim of its own.
type Scene struct {
	Name string
	// Alone says that nothing else may go on with the daemon meanwhile.
	Alone bool
	live  func(context.Context, *player) error
}

// All lists the scenes, those that pass the most points first.
func All() []Scene {
	return []Scene{
		{"plain", false, plain},
		{"execs", false, execs},
		{"freeze", false, freeze},
		{"shared", false, shared},
		{"failing", false, failing},
		{"oom", false, oom},
		{"spooled", true, spooled},
	}
}

// Find returns the scene of a name.
func Find(name string) (Scene, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Scene{}, fmt.Errorf("there is no scene %q", name)
}

// Stage is where a scene is played.
type Stage struct {
	H        *harness.Harness
	ID       string           // of the container
	Terminal bool             // of the init and the first exec
	Options  any              // of the runtime
	Spec     []oci.SpecOpts   // applied last
	Note     func(string)     // is told of each step that is over; nil: nobody is
	Again    func(error) bool // whether a call that ended so is made again; nil: none is
	// Repeats says that a call which is made again may find that it was done the first time.
	Repeats bool
	// Lossy are the processes ("" for the init) whose runtime is killed while it brings them up: their status may be
	// unknown, and their output cut short.
	Lossy []string
	// Restarts says that containerd is: before a call is made again the container is loaded.
	Restarts bool
	// Pause, where there is one, is called between two steps.
	Pause func()
}

// player plays one scene.
type player struct {
	Stage
	rec    *real.Recorder
	c      *harness.Container
	tokens string // on the host, /tokens in the container
	runs   map[string]*checker.Run
	execs  map[string]*harness.Exec
	again  map[string]bool // execs whose start was asked for again: the Wait from before has failed with the first
}

const (
	stepLimit  = 60 * time.Second
	eventLimit = 30 * time.Second
)

// Play plays a scene and returns all that must not have been.
func (s Scene) Play(ctx context.Context, stage Stage) error {
	p := &player{
		Stage: stage, rec: real.NewRecorder(stage.H), tokens: filepath.Join(stage.H.Dir(), "tokens-"+stage.ID),
		runs: map[string]*checker.Run{}, again: map[string]bool{}, execs: map[string]*harness.Exec{},
	}
	if err := os.Mkdir(p.tokens, 0o700); err != nil {
		return err
	}
	err := s.live(ctx, p)
	if err == nil {
		err = p.judge()
	}
	if p.c != nil && err == nil {
		p.pause()
		if err = p.reload(); err == nil {
			err = p.c.Remove(ctx)
		}
	}
	return errors.Join(err, os.RemoveAll(p.tokens))
}

func (p *player) pause() {
	if p.Pause != nil {
		p.Pause()
	}
}

// done says that an operation is refused because it was done.
func done(op checker.Op, err error) bool {
	switch op {
	case checker.OpKill, checker.OpDelete:
		return errdefs.IsNotFound(err)
	case checker.OpExec:
		return errdefs.IsAlreadyExists(err)
	}
	return errdefs.IsFailedPrecondition(err)
}

// judge has what was seen checked.
func (p *player) judge() error {
	for exec, run := range p.runs {
		run.Unknowable = slices.Contains(p.Lossy, exec)
		for i := range run.Streams {
			run.Streams[i].Partial = run.Unknowable
		}
		if run.Starts != checker.NotCounted {
			text, err := os.ReadFile(filepath.Join(p.tokens, nameOf(exec)))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			run.Starts = strings.Count(string(text), "\n")
		}
		p.rec.Note(*run)
	}
	if _, err := p.H.Events.Await(eventLimit, p.ID, "delete"); err != nil {
		return err
	}
	history, err := p.rec.Over(p.ID)
	if p.Restarts {
		lastLife(&history)
	}
	return errors.Join(append(checker.Check(history), err)...)
}

// nameOf is the name of a process's token.
func nameOf(exec string) string {
	if exec == "" {
		return "init"
	}
	return exec
}

// token is shell code that says that the process was started.
func token(exec string) string { return fmt.Sprintf("echo >>/tokens/%s; ", nameOf(exec)) }

func (p *player) target(exec string) checker.Target {
	return checker.Target{Container: p.ID, Life: 1, Exec: exec}
}

// run is what becomes of a process that is to be started.
func (p *player) run(exec string, statuses ...uint32) *checker.Run {
	p.runs[exec] = &checker.Run{Target: p.target(exec), Ended: true, Statuses: statuses}
	return p.runs[exec]
}

// step makes a call, again where the stage wants it so, and says when it is over.
func (p *player) step(exec string, op checker.Op, ask func(answer *checker.Call) error) error {
	return p.unrecorded(exec, op, func() error {
		if op != checker.OpCreate && p.c.Task == nil {
			return fmt.Errorf("task %s: %w", p.ID, errdefs.ErrNotFound) // so it was after a restart of containerd
		}
		return p.rec.Ask(p.target(exec), op, ask)
	})
}

// unrecorded is step for a call that the checkers are not to know of.
func (p *player) unrecorded(exec string, op checker.Op, ask func() error) error {
	p.pause()
	err := ask()
	for tries := 1; err != nil && tries < 5 && p.Again != nil && p.Again(err); tries++ {
		p.again[exec] = p.again[exec] || op == checker.OpStart || p.Restarts
		if err = p.reload(); err == nil {
			err = ask()
		}
		if p.Repeats && done(op, err) {
			err = nil
		}
	}
	if p.Note != nil {
		p.Note(fmt.Sprintf("- %s %s", op, nameOf(exec)))
	}
	if err != nil {
		return fmt.Errorf("%s %s of %s: %w", op, nameOf(exec), p.ID, err)
	}
	return nil
}

// create makes the container, with what the stage and all scenes want.
func (p *player) create(ctx context.Context, cfg harness.Config) error {
	cfg.Terminal, cfg.Options = p.Terminal, p.Options
	cfg.Mounts = append(cfg.Mounts, specs.Mount{Type: "bind", Source: p.tokens, Destination: "/tokens", Options: []string{"rbind", "rw"}})
	cfg.Spec = append(cfg.Spec, p.Spec...)
	return p.step("", checker.OpCreate, func(answer *checker.Call) (err error) {
		if p.c == nil {
			p.c, err = p.H.Create(ctx, p.ID, cfg)
		} else {
			err = p.createAgain(ctx, cfg)
		}
		if err == nil {
			answer.Pid = int(p.c.Task.Pid())
		}
		return err
	})
}

// begin creates the container and starts its init.
func (p *player) begin(ctx context.Context, cfg harness.Config) error {
	if err := p.create(ctx, cfg); err != nil {
		return err
	}
	return p.start(ctx, "")
}

// start starts a process. It does so past containerd's client, which takes the fifos away when that fails.
func (p *player) start(ctx context.Context, exec string) error {
	return p.step(exec, checker.OpStart, func(answer *checker.Call) error {
		r, err := p.H.Client().TaskService().Start(ctx, &tasks.StartRequest{ContainerID: p.ID, ExecID: exec})
		answer.Pid = int(r.GetPid())
		return errgrpc.ToNative(err)
	})
}
