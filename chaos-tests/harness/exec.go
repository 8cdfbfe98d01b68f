package harness

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/client"
)

// ExecConfig says what an exec is to be.
type ExecConfig struct {
	ID       string
	Args     []string
	Terminal bool
	Stdin    io.Reader // nil: none
}

// Exec is a process that was added to a running container.
type Exec struct {
	client.Process
	Streams

	exits <-chan client.ExitStatus
}

// Result is everything a client learns of an exec.
type Result struct {
	Exit
	Pid            int
	Stdout, Stderr string
}

// outputLimit is how long an output may take to end after its process.
const outputLimit = 20 * time.Second

// AddExec adds an exec without starting it.
func (c *Container) AddExec(ctx context.Context, cfg ExecConfig) (*Exec, error) {
	process := c.process
	process.Args = cfg.Args
	process.Terminal = cfg.Terminal
	e := &Exec{}
	added, err := c.Task.Exec(ctx, cfg.ID, &process, e.creator(c.h.fifos(), cfg.Stdin, cfg.Terminal))
	if err != nil {
		return nil, fmt.Errorf("add exec %s to %s: %w", cfg.ID, c.ID, err)
	}
	e.Process = added
	e.exits, err = added.Wait(c.h.Context())
	return e, err
}

// Exec adds an exec and starts it.
func (c *Container) Exec(ctx context.Context, cfg ExecConfig) (*Exec, error) {
	e, err := c.AddExec(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := e.Start(ctx); err != nil {
		return e, fmt.Errorf("start exec %s of %s: %w", cfg.ID, c.ID, err)
	}
	return e, nil
}

// AwaitExit waits for the exec's end. It can be called once.
func (e *Exec) AwaitExit(ctx context.Context) (Exit, error) {
	return awaitExit(ctx, e.exits, "exec "+e.ID())
}

// Finish waits for the exec's end and that of its outputs, and deletes it.
func (e *Exec) Finish(ctx context.Context) (Result, error) {
	exit, err := e.AwaitExit(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := drain(e.IO(), outputLimit); err != nil {
		return Result{}, fmt.Errorf("exec %s: %w", e.ID(), err)
	}
	deleted, err := e.Delete(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("delete exec %s: %w", e.ID(), err)
	}
	if deleted.ExitCode() != exit.Code {
		return Result{}, fmt.Errorf("exec %s ended with %d for Wait and %d for Delete", e.ID(), exit.Code, deleted.ExitCode())
	}
	return Result{exit, int(e.Pid()), e.Stdout.String(), e.Stderr.String()}, nil
}

// Sh runs a shell script as exec id and returns how it ended.
func (c *Container) Sh(ctx context.Context, id, script string) (Result, error) {
	e, err := c.Exec(ctx, ExecConfig{ID: id, Args: []string{"/bin/sh", "-c", script}})
	if err != nil {
		return Result{}, err
	}
	return e.Finish(ctx)
}
