package cases

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// TestDeleteIsAskedForTwice is case 7 (containerd#11392, 7496): the first client's deadline passes in the middle of a
// Delete, which goes on; a second Delete, during the first and after it, gives the same answer, and the id can be
// used again.
func TestDeleteIsAskedForTwice(t *testing.T) {
	harness.NeedsPerdure(t)
	hanging, dir := harness.Runtime(t, "delete", `touch $dir/deleting; read < $dir/gate`)
	gate := filepath.Join(dir, "gate")
	harness.Check(t, unix.Mkfifo(gate, 0o600))
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	anchor, err := h.Run(ctx, "anchor", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	c, err := h.Run(ctx, "twice", harness.Config{Args: harness.Shell("exit 5"), Pod: "anchor", Options: hanging})
	harness.Check(t, err)
	exit, err := c.Wait(ctx)
	harness.Check(t, err)

	short, cancel := context.WithCancel(ctx)
	first := make(chan error, 1)
	go func() {
		first <- anchor.Call(short, "Delete", &api.DeleteRequest{ID: "twice"}, &api.DeleteResponse{})
	}()
	harness.Check(t, wait.Until(ctx, limit, "the runtime to delete", func() error {
		_, err := os.Stat(filepath.Join(dir, "deleting"))
		return err
	}))
	cancel() // its client closes the connection
	if err := <-first; err == nil {
		t.Error("the first Delete was answered")
	}
	second := make(chan error, 1)
	answer := &api.DeleteResponse{}
	go func() { second <- anchor.Call(ctx, "Delete", &api.DeleteRequest{ID: "twice"}, answer) }()
	open, err := os.OpenFile(gate, os.O_WRONLY, 0)
	harness.Check(t, err)
	harness.Check(t, open.Close())
	harness.Check(t, <-second)
	third := &api.DeleteResponse{}
	harness.Check(t, anchor.Call(ctx, "Delete", &api.DeleteRequest{ID: "twice"}, third))
	for _, resp := range []*api.DeleteResponse{answer, third} {
		if resp.ExitStatus != 5 || !resp.ExitedAt.AsTime().Equal(exit.At) || resp.Pid != c.Task.Pid() {
			t.Errorf("Delete answers %v; want 5 at %v and pid %d", resp, exit.At, c.Task.Pid())
		}
	}
	if err := anchor.Call(ctx, "State", &api.StateRequest{ID: "twice"}, &api.StateResponse{}); !errdefs.IsNotFound(err) {
		t.Errorf("state of what is deleted: %v", err)
	}
	// containerd has heard nothing of it. Its client would ask for the state first, and be content that it is gone.
	told, err := h.Client().TaskService().Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: "twice"})
	harness.Check(t, err)
	if told.ExitStatus != 5 {
		t.Errorf("containerd is told %d", told.ExitStatus)
	}
	c.Task = nil
	harness.Check(t, c.Remove(ctx))

	again, err := h.Run(ctx, "twice", harness.Config{Args: harness.Shell("exit 6"), Pod: "anchor"})
	harness.Check(t, err)
	if exit, err := again.Wait(ctx); err != nil || exit.Code != 6 {
		t.Errorf("the id used again ended with %d, %v", exit.Code, err)
	}
}

// TestDeleteWhoseClientIsGone is case 7 through containerd: the client's context ends in the middle. Its next Delete
// succeeds or says that it is done already, and nothing is left.
func TestDeleteWhoseClientIsGone(t *testing.T) {
	hanging, dir := harness.Runtime(t, "delete", `if mkdir $dir/deleting 2>/dev/null; then read < $dir/gate; fi`)
	gate := filepath.Join(dir, "gate")
	harness.Check(t, unix.Mkfifo(gate, 0o600))
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "gone", harness.Config{Args: harness.Shell("exit 5"), Options: hanging})
	harness.Check(t, err)
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	short, cancel := context.WithCancel(ctx)
	first := make(chan error, 1)
	go func() {
		_, err := c.Task.Delete(short)
		first <- err
	}()
	harness.Check(t, wait.Until(ctx, limit, "the runtime to delete", func() error {
		_, err := os.Stat(filepath.Join(dir, "deleting"))
		return err
	}))
	cancel()
	if err := <-first; err == nil {
		t.Error("the first Delete was answered")
	}
	open, err := os.OpenFile(gate, os.O_WRONLY, 0)
	harness.Check(t, err)
	harness.Check(t, open.Close())
	harness.Check(t, c.Load(ctx))
	deleted, err := c.Task.Delete(ctx)
	if err != nil && !errdefs.IsNotFound(err) || err == nil && deleted.ExitCode() != 5 {
		t.Errorf("the second Delete: %v, %v", deleted, err)
	}
	c.Task = nil
	_, err = h.Events.Expect(limit, "gone", "create", "start", "exit", "delete")
	harness.Check(t, err)
}
