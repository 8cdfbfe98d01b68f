package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

// TestLeftRunning: the container goes on as if nothing had been, and another goes on from where
// it was.
func TestLeftRunning(t *testing.T) {
	needsCRIU(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "origin", harness.Config{Args: harness.Shell(counter), Spec: hostNetwork(), IO: cio.NullIO})
	harness.Check(t, err)
	pid := c.Task.Pid()
	count(ctx, t, c, 0, 3)
	image, err := c.Task.Checkpoint(ctx)
	harness.Check(t, err)
	running(ctx, t, c, pid)
	count(ctx, t, c, 3, 2)

	twin, err := h.Run(ctx, "twin", harness.Config{
		Spec: hostNetwork(), IO: cio.NullIO, Task: []client.NewTaskOpts{client.WithTaskCheckpoint(image)},
	})
	harness.Check(t, err)
	running(ctx, t, twin, twin.Task.Pid())
	exits, err := twin.Task.Wait(ctx)
	harness.Check(t, err)
	ends(ctx, t, twin, exits, 3)
	exits, err = c.Task.Wait(ctx)
	harness.Check(t, err)
	ends(ctx, t, c, exits, 5)
	harness.Check(t, c.DeleteTask(ctx))
	harness.Check(t, twin.DeleteTask(ctx))
	_, err = h.Events.Expect(limit, "origin", "create", "start", "paused", "checkpointed", "resumed", "exit", "delete") // the client pauses it
	harness.Check(t, err)
	_, err = h.Events.Expect(limit, "twin", "create", "start", "exit", "delete")
	harness.Check(t, err)
}

// TestEndedAndRestored: the task ends with its checkpoint, and a new task of the same container
// goes on from it, whatever happens to its worker.
func TestEndedAndRestored(t *testing.T) {
	needsCRIU(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "again", harness.Config{Args: harness.Shell(counter), Spec: hostNetwork(), IO: cio.NullIO})
	harness.Check(t, err)
	count(ctx, t, c, 0, 4)
	image, err := c.Task.Checkpoint(ctx, exiting)
	harness.Check(t, err)
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.DeleteTask(ctx))

	c.Task, err = c.NewTask(ctx, cio.NullIO, client.WithTaskCheckpoint(image))
	harness.Check(t, err)
	exits, err := c.Task.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Task.Start(ctx))
	pid := c.Task.Pid()
	running(ctx, t, c, pid)
	count(ctx, t, c, 4, 1)
	if daemon.Runtime() != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
	}
	running(ctx, t, c, pid)
	if r, err := c.Sh(ctx, "e", "cat /count; exit 9"); err != nil || r.Code != 9 || r.Stdout != "5\n" {
		t.Errorf("an exec in it ended with %d and said %q, %v", r.Code, r.Stdout, err)
	}
	ends(ctx, t, c, exits, 5)
	harness.Check(t, c.DeleteTask(ctx))
}

// TestOutputGoesOn: a restored container writes to the streams of its new client.
func TestOutputGoesOn(t *testing.T) {
	needsCRIU(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "writer", harness.Config{Args: harness.Shell(counter), Spec: hostNetwork()})
	harness.Check(t, err)
	count(ctx, t, c, 0, 1)
	harness.Check(t, c.Stdout.Await(limit, "count-1\n"))
	image, err := c.Task.Checkpoint(ctx)
	harness.Check(t, err)
	count(ctx, t, c, 1, 1)
	harness.Check(t, c.Stdout.Await(limit, "count-2\n"))

	twin, err := h.Run(ctx, "twin", harness.Config{
		Spec: hostNetwork(), Task: []client.NewTaskOpts{client.WithTaskCheckpoint(image)},
	})
	harness.Check(t, err)
	harness.Check(t, twin.Task.Kill(ctx, 10)) // USR1
	harness.Check(t, twin.Stdout.Await(limit, "count-2\n"))
	if said := twin.Stdout.String(); strings.Contains(said, "count-1") {
		t.Errorf("the restored container says again what was said before: %q", said)
	}
}

// TestImagePath: under the stock runtime's name containerd lets the shim write the image where
// the client wants it.
func TestImagePath(t *testing.T) {
	needsCRIU(t)
	bin, err := daemon.Bin()
	harness.Check(t, err)
	cfg := harness.Config{
		Args: harness.Shell(counter), Spec: hostNetwork(), IO: cio.NullIO, Runtime: harness.Stock,
	}
	if daemon.Runtime() != harness.Stock {
		cfg.Binary = filepath.Join(bin, "containerd-shim-perdure-v2")
	}
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "origin", cfg)
	harness.Check(t, err)
	count(ctx, t, c, 0, 2)
	path := filepath.Join(t.TempDir(), "image")
	_, err = c.Task.Checkpoint(ctx, client.WithCheckpointImagePath(path), exiting)
	harness.Check(t, err)
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	if files, err := os.ReadDir(path); err != nil || len(files) == 0 {
		t.Fatalf("the image has %d files, %v", len(files), err)
	}
	// In the same container: with cgroup v2 CRIU brings the processes back into the cgroup of the dumped one.
	harness.Check(t, c.DeleteTask(ctx))
	options := []client.NewTaskOpts{client.WithRestoreImagePath(path)}
	if cfg.Binary != "" {
		options = append(options, client.WithRuntimePath(cfg.Binary))
	}
	c.Task, err = c.NewTask(ctx, cio.NullIO, options...)
	harness.Check(t, err)
	exits, err := c.Task.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Task.Start(ctx))
	ends(ctx, t, c, exits, 2)
}
