package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/daemon"
)

// Config says what a container is to be. The zero value is a shell without
// input, which ends at once.
type Config struct {
	Args     []string
	Terminal bool
	Stdin    io.Reader // nil: none
	Pod      string    // id of the container whose shim this one joins
	SharePID int       // pid whose pid namespace is joined, 0: its own
	Mounts   []specs.Mount
	Runtime  string         // "": daemon.Runtime()
	Binary   string         // path of the shim to use for it instead (CRI's runtime_path), "": as Runtime says
	Options  any            // runtime options, nil: none
	Spec     []oci.SpecOpts // applied last

	IO       cio.Creator                                             // instead of fifos that Streams reads
	Task     []client.NewTaskOpts                                    // further options of the task
	Snapshot func(id string, i client.Image) client.NewContainerOpts // instead of WithNewSnapshot
}

// podAnnotation is how CRI says which pod a container is of.
const podAnnotation = "io.kubernetes.cri.sandbox-id"

// Container is a container with its task.
type Container struct {
	ID      string
	Group   string // the id that the shim was started for
	Runtime string
	client.Container
	Task client.Task
	Streams

	h       *Harness
	execs   []*Exec       // whose streams are to be closed
	process specs.Process // what an exec starts from
	exits   <-chan client.ExitStatus
}

// Sleep is what most containers run: it does nothing until it is killed, and
// ends for SIGTERM like a well-mannered init.
func Sleep() []string {
	return []string{"/bin/sh", "-c", `trap 'exit 143' TERM; while :; do sleep 1000 & wait $!; done`}
}

// Create makes a container and its task, which is not started yet.
func (h *Harness) Create(ctx context.Context, id string, cfg Config) (*Container, error) {
	c := &Container{ID: id, Group: id, Runtime: daemon.Runtime(), h: h}
	if cfg.Runtime != "" {
		c.Runtime = cfg.Runtime
	}
	if cfg.Pod != "" {
		c.Group = cfg.Pod
	}
	image, err := h.Client().GetImage(ctx, daemon.Image)
	if err != nil {
		return nil, err
	}
	snapshot := client.WithNewSnapshot(id, image)
	if cfg.Snapshot != nil {
		snapshot = cfg.Snapshot(id, image)
	}
	c.Container, err = h.Client().NewContainer(ctx, id,
		client.WithImageName(daemon.Image),
		client.WithSnapshotter(h.snapshotter),
		snapshot,
		client.WithRuntime(c.Runtime, cfg.Options),
		client.WithNewSpec(specOptions(cfg, c.Group)...),
	)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	h.mu.Lock()
	h.containers[id] = c
	h.mu.Unlock()
	spec, err := c.Spec(ctx)
	if err != nil {
		return nil, err
	}
	c.process = *spec.Process
	return c, c.CreateTask(ctx, cfg)
}

// CreateTask makes the task: again, where Create could not.
func (c *Container) CreateTask(ctx context.Context, cfg Config) error {
	opts := cfg.Task
	if cfg.Binary != "" {
		opts = append(opts, client.WithRuntimePath(cfg.Binary))
	}
	creator := cfg.IO
	if creator == nil {
		creator = c.creator(c.h.fifos(), cfg.Stdin, cfg.Terminal)
	}
	task, err := c.NewTask(ctx, creator, opts...)
	if err != nil {
		return fmt.Errorf("create task %s: %w", c.ID, err)
	}
	c.Task = task
	c.exits, err = task.Wait(c.h.Context())
	return err
}

func specOptions(cfg Config, group string) []oci.SpecOpts {
	args := cfg.Args
	if len(args) == 0 {
		args = []string{"/bin/true"}
	}
	options := []oci.SpecOpts{
		oci.WithRootFSPath("rootfs"),
		oci.WithProcessArgs(args...),
		oci.WithEnv([]string{"PATH=/bin"}),
		oci.WithMounts(cfg.Mounts),
		oci.WithAnnotations(map[string]string{podAnnotation: group}),
	}
	if cfg.Terminal {
		options = append(options, oci.WithTTY)
	}
	if cfg.SharePID != 0 {
		options = append(options, oci.WithLinuxNamespace(specs.LinuxNamespace{
			Type: specs.PIDNamespace,
			Path: fmt.Sprintf("/proc/%d/ns/pid", cfg.SharePID),
		}))
	}
	return append(options, cfg.Spec...)
}

// fifos is where the client's ends of all streams are.
func (h *Harness) fifos() string { return filepath.Join(h.Dir(), "fifo") }

// Run creates a container and starts its task.
func (h *Harness) Run(ctx context.Context, id string, cfg Config) (*Container, error) {
	c, err := h.Create(ctx, id, cfg)
	if err != nil {
		return c, err
	}
	if err := c.Task.Start(ctx); err != nil {
		return c, fmt.Errorf("start task %s: %w", id, err)
	}
	return c, nil
}

// Exit is the end of a process as Wait tells it.
type Exit struct {
	Code uint32
	At   time.Time
}

// Wait waits for the end of the task's init. It can be called once.
func (c *Container) Wait(ctx context.Context) (Exit, error) {
	return awaitExit(ctx, c.exits, "task "+c.ID)
}

func awaitExit(ctx context.Context, exits <-chan client.ExitStatus, what string) (Exit, error) {
	select {
	case status := <-exits:
		code, at, err := status.Result()
		if err != nil {
			return Exit{}, fmt.Errorf("wait for %s: %w", what, err)
		}
		return Exit{code, at}, nil
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for %s: %w", what, ctx.Err())
	}
}

// Load connects to the container's task again after containerd was restarted;
// the client's ends of its streams stay as they are.
func (c *Container) Load(ctx context.Context) error {
	loaded, err := c.h.Client().LoadContainer(ctx, c.ID)
	if err != nil {
		return err
	}
	c.Container = loaded
	c.Task, err = loaded.Task(ctx, nil)
	if err != nil {
		c.Task = nil
		return fmt.Errorf("load task %s: %w", c.ID, err)
	}
	c.exits, err = c.Task.Wait(c.h.Context())
	return err
}

// DeleteTask ends the task if it runs, and deletes it. No task is no error.
func (c *Container) DeleteTask(ctx context.Context) error {
	if c.Task == nil {
		return c.closeAll()
	}
	_, err := c.Task.Delete(ctx, client.WithProcessKill)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete task %s: %w", c.ID, err)
	}
	c.Task = nil
	return c.closeAll()
}

// closeAll closes the client's ends of all that ran in the container.
func (c *Container) closeAll() error {
	err := c.closeStreams()
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	for _, e := range c.execs {
		err = errors.Join(err, e.closeStreams())
	}
	c.execs = nil
	return err
}

// Remove ends and deletes the task, the container and its file system,
// whichever of them there are, also those made before containerd was restarted.
func (c *Container) Remove(ctx context.Context) error {
	if c.Task != nil {
		if err := c.Load(ctx); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	if c.Task != nil {
		if err := c.CheckJournal(ctx); err != nil {
			return err
		}
	}
	if err := c.DeleteTask(ctx); err != nil {
		return err
	}
	err := c.Delete(ctx, client.WithSnapshotCleanup)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete container %s: %w", c.ID, err)
	}
	c.h.mu.Lock()
	delete(c.h.containers, c.ID)
	c.h.mu.Unlock()
	return nil
}

// Kill sends a signal to the task's init. A task that has ended is no error.
func (c *Container) Kill(ctx context.Context, sig syscall.Signal) error {
	err := c.Task.Kill(ctx, sig)
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("kill task %s", c.ID), err)
}
