package harness

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
)

// ExecConfig says what an exec is to be.
type ExecConfig struct {
	ID       string
	Args     []string
	Terminal bool
	Stdin    io.Reader   // nil: none
	IO       cio.Creator // instead of fifos that Streams reads
}

// Exec is a process that was added to a running container.
type Exec struct {
	client.Process
	Streams

	c     *Container
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
	e := &Exec{c: c}
	creator := cfg.IO
	if creator == nil {
		creator = e.creator(c.h.fifos(), cfg.Stdin, cfg.Terminal)
	}
	added, err := c.Task.Exec(ctx, cfg.ID, &process, creator)
	if err != nil {
		return nil, fmt.Errorf("add exec %s to %s: %w", cfg.ID, c.ID, err)
	}
	e.Process = added
	c.h.mu.Lock()
	c.execs = append(c.execs, e)
	c.h.mu.Unlock()
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

// Load connects to the exec again after containerd was restarted and its
// container was loaded.
func (e *Exec) Load(ctx context.Context) error {
	loaded, err := e.c.Task.LoadProcess(ctx, e.ID(), nil)
	if err != nil {
		return fmt.Errorf("load exec %s of %s: %w", e.ID(), e.c.ID, err)
	}
	e.Process = loaded
	e.exits, err = loaded.Wait(e.c.h.Context())
	return err
}

// AwaitExit waits for the exec's end. It can be called once.
func (e *Exec) AwaitExit(ctx context.Context) (Exit, error) {
	return awaitExit(ctx, e.exits, "exec "+e.ID())
}

// close closes the client's ends and lets the harness forget them.
func (e *Exec) close() error {
	e.c.h.mu.Lock()
	defer e.c.h.mu.Unlock()
	e.c.execs = slices.DeleteFunc(e.c.execs, func(other *Exec) bool { return other == e })
	return e.closeStreams()
}

// Finish waits for the exec's end and that of its outputs, and deletes it.
func (e *Exec) Finish(ctx context.Context) (Result, error) {
	exit, err := e.AwaitExit(ctx)
	if err != nil {
		return Result{}, err
	}
	if err := e.Streams.AwaitEnd(outputLimit); err != nil {
		return Result{}, fmt.Errorf("exec %s: %w", e.ID(), err)
	}
	deleted, err := e.Delete(ctx)
	if err != nil {
		return Result{}, fmt.Errorf("delete exec %s: %w", e.ID(), err)
	}
	if deleted.ExitCode() != exit.Code || !deleted.ExitTime().Equal(exit.At) {
		return Result{}, fmt.Errorf("exec %s ended with %d at %v for Wait and %d at %v for Delete",
			e.ID(), exit.Code, exit.At, deleted.ExitCode(), deleted.ExitTime())
	}
	if err := e.close(); err != nil {
		return Result{}, fmt.Errorf("exec %s: %w", e.ID(), err)
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
