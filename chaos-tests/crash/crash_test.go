// Package crash ends the worker with SIGKILL at each crash point, once, in the
// middle of a whole life of a container, and expects that nobody noticed.
package crash

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/chaos-tests/harness"
	"perdure/internal/crash"
)

const limit = 30 * time.Second

// prerequisites are points that have to fire before another can be reached.
var prerequisites = map[string]string{
	"recover.before-settle": "exec-start.after-effect",
}

func TestEveryPoint(t *testing.T) {
	run(t, false, func(point string) bool { return !strings.HasPrefix(point, "oom.") }) // package cgroups has those
}

// TestEveryPointWithTerminals is the same life with ttys, where stdio differs.
func TestEveryPointWithTerminals(t *testing.T) {
	run(t, true, func(point string) bool {
		op, _, _ := strings.Cut(point, ".")
		return op == "create" || op == "exec-start" || op == "recover"
	})
}

// run lives one life for each point, all with one containerd.
func run(t *testing.T, terminal bool, wanted func(point string) bool) {
	h, crashes := harness.NewWithCrashes(t)
	for _, point := range crash.Of(crash.Worker) {
		if !wanted(point) {
			continue
		}
		t.Run(point, func(t *testing.T) {
			// A point of recovery needs a worker that has died before.
			armed := []string{point}
			if first, ok := prerequisites[point]; ok {
				armed = append(armed, first)
			}
			harness.Check(t, crashes.Arm(armed...))
			life(h.Within(t, 2*time.Minute), t, h, strings.ReplaceAll(point, ".", "-"), terminal)
			harness.Check(t, crashes.Fired(point))
		})
	}
}

// life is everything a container and its execs do. Each process leaves a token
// when it runs, so one that was started twice shows.
func life(ctx context.Context, t *testing.T, h *harness.Harness, id string, terminal bool) {
	tokens := t.TempDir()
	mount := specs.Mount{Type: "bind", Source: tokens, Destination: "/tokens", Options: []string{"rbind", "rw"}}
	script := `echo init >> /tokens/init; echo up; trap 'exit 9' TERM; while :; do sleep 1000 & wait $!; done`
	c, err := h.Run(ctx, id, harness.Config{Args: harness.Shell(script), Terminal: terminal, Mounts: []specs.Mount{mount}, Stdin: strings.NewReader("")})
	harness.Check(t, err)
	pid := c.Task.Pid()

	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("echo e1 >> /tokens/e1; echo said; exit 5"), Terminal: terminal})
	harness.Check(t, err)
	result, err := e.Finish(ctx)
	harness.Check(t, err)
	if said := strings.TrimSpace(result.Stdout); result.Code != 5 || said != "said" {
		t.Errorf("e1 ended with %d and said %q", result.Code, said)
	}

	e, err = c.Exec(ctx, harness.ExecConfig{ID: "e2", Args: harness.Shell("echo e2 >> /tokens/e2; exec sleep 1000"), Terminal: terminal})
	harness.Check(t, err)
	harness.Check(t, e.Kill(ctx, syscall.SIGKILL))
	if result, err = e.Finish(ctx); err != nil || result.Code != 137 {
		t.Errorf("e2 ended with %d, %v", result.Code, err)
	}

	e, err = c.Exec(ctx, harness.ExecConfig{ID: "e3", Args: harness.Shell("echo e3 >> /tokens/e3; cat"), Stdin: strings.NewReader("through\n"), Terminal: false})
	harness.Check(t, err)
	harness.Check(t, e.CloseIO(ctx, client.WithStdinCloser))
	if result, err = e.Finish(ctx); err != nil || result.Code != 0 || result.Stdout != "through\n" {
		t.Errorf("e3 ended with %d, %v, and said %q", result.Code, err, result.Stdout)
	}

	freeze(ctx, t, h, c)

	harness.Check(t, c.CheckJournal(ctx))
	harness.Check(t, c.Load(ctx))
	if c.Task.Pid() != pid {
		t.Errorf("the init was %d and is %d", pid, c.Task.Pid())
	}
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGTERM))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	deleted, err := c.Task.Delete(ctx)
	harness.Check(t, err)
	if exit.Code != 9 || deleted.ExitCode() != 9 || !deleted.ExitTime().Equal(exit.At) {
		t.Errorf("the init ended with %d at %v for Wait and %d at %v for Delete, want 9", exit.Code, exit.At, deleted.ExitCode(), deleted.ExitTime())
	}
	c.Task = nil
	if said := strings.TrimSpace(c.Stdout.String()); said != "up" {
		t.Errorf("the init has said %q", said)
	}

	events := []string{"create", "start"}
	for _, e := range []string{"e1", "e2", "e3"} {
		events = append(events, "exec-added "+e, "exec-started "+e, "exit "+e)
	}
	_, err = h.Events.Expect(limit, id, append(events, "paused", "resumed", "exit", "delete")...)
	harness.Check(t, err)
	for _, who := range []string{"init", "e1", "e3"} {
		if text, err := os.ReadFile(filepath.Join(tokens, who)); err != nil || string(text) != who+"\n" {
			t.Errorf("%s has run %d times, want once (%v)", who, strings.Count(string(text), "\n"), err)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(tokens, "e2")); strings.Count(string(text), "\n") > 1 {
		t.Errorf("e2 has run %q", text) // it may be killed before it says so
	}
}

// freeze is what is done to a container as a whole. The dump fails where CRIU is not there or does not know the
// kernel: what counts is that the container goes on. Package checkpoint is about dumps that succeed.
func freeze(ctx context.Context, t *testing.T, h *harness.Harness, c *harness.Container) {
	t.Helper()
	harness.Check(t, c.Task.CloseIO(ctx, client.WithStdinCloser))
	harness.Check(t, c.Task.Pause(ctx))
	expectStatus(ctx, t, c, client.Paused)
	harness.Check(t, c.Task.Resume(ctx))
	limit := int64(77)
	harness.Check(t, c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &limit}})))
	_, err := h.Client().TaskService().Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: c.ID, Options: leaveRunning(t)})
	if err != nil && !strings.Contains(err.Error(), "checkpoint failed") {
		t.Errorf("checkpoint: %v", err)
	}
	expectStatus(ctx, t, c, client.Running)
}

func leaveRunning(t *testing.T) *anypb.Any {
	t.Helper()
	any, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{ImagePath: t.TempDir()})
	harness.Check(t, err)
	return any
}

func expectStatus(ctx context.Context, t *testing.T, c *harness.Container, want client.ProcessStatus) {
	t.Helper()
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != want {
		t.Errorf("the container is %s, want %s", status.Status, want)
	}
}
