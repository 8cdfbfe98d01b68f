package api

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// TestResumeWhoseRuntimeDies: the container was thawed, whatever became of the runtime, and so it runs.
func TestResumeWhoseRuntimeDies(t *testing.T) {
	harness.NeedsPerdure(t)
	dying, _ := harness.Runtime(t, "resume", `$runc "$@"; kill -9 $$`)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "thawed", harness.Config{Args: harness.Sleep(), Options: dying})
	harness.Check(t, err)
	harness.Check(t, c.Task.Pause(ctx))
	harness.Check(t, c.Task.Resume(ctx))
	expect(ctx, t, c, client.Running)
	harness.Check(t, c.Task.Pause(ctx))
	expect(ctx, t, c, client.Paused)
}

// TestDeadlineOverALogger: a logger that never says that it is ready is waited for no longer than the client waits.
func TestDeadlineOverALogger(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	anchor, err := h.Run(ctx, "anchor", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	gates, err := h.NewGates("hook")
	harness.Check(t, err)
	harness.Check(t, gates.Open("hook"))
	bundle := hangingBundle(t, h, anchor, gates)
	req := &api.CreateTaskRequest{ID: "mute", Bundle: bundle, Stdout: "binary:///bin/sleep?1000", Rootfs: []*types.Mount{{
		Type: "bind", Source: filepath.Join(h.Bundle(h.Namespace, anchor.ID), "rootfs"), Options: []string{"rbind", "rw"},
	}}}
	short, cancel := context.WithTimeout(ctx, limit/20)
	defer cancel()
	if err := anchor.Call(short, "Create", req, &emptypb.Empty{}); err == nil {
		t.Error("a logger that is not ready was good enough")
	}
	req.Stdout = ""
	// Half the time that a logger has where nobody gives up.
	harness.Check(t, wait.Until(ctx, limit/4, "the id to be free", func() error {
		return anchor.Call(ctx, "Create", req, &emptypb.Empty{})
	}))
	harness.Check(t, anchor.Call(ctx, "Delete", &api.DeleteRequest{ID: "mute"}, &emptypb.Empty{}))
}

// TestLongAnswers: an answer that repeats megabytes of what was asked ends no worker.
func TestLongAnswers(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "asked", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	worker, err := c.Worker(ctx)
	harness.Check(t, err)
	long := strings.Repeat("\x01", 2<<20)
	process := anyOf(t, &specs.Process{Args: harness.Shell("exit 0"), Cwd: "/"})
	err = c.Call(ctx, "Exec", &api.ExecProcessRequest{ID: c.ID, ExecID: long, Spec: process}, &emptypb.Empty{})
	if !errdefs.IsInvalidArgument(err) || len(err.Error()) > 64<<10 {
		t.Errorf("an exec id of 2 MiB: %.100v", err)
	}
	err = c.Call(ctx, "State", &api.StateRequest{ID: long}, &emptypb.Empty{})
	if !errdefs.IsNotFound(err) {
		t.Errorf("the state of a task with an id of 2 MiB: %.100v", err)
	}
	if now, err := c.Worker(ctx); err != nil || now != worker {
		t.Errorf("the worker was %d and is %d, %v", worker, now, err)
	}
}

// TestWaitForAStartThatFails: who waits for an exec is told that it never came to be.
func TestWaitForAStartThatFails(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx, cancel := context.WithCancel(h.Within(t, testLimit))
	defer cancel()
	c, err := h.Run(ctx, "waited", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	process := anyOf(t, &specs.Process{Args: []string{"/not/there"}, Cwd: "/"})
	harness.Check(t, c.Call(ctx, "Exec", &api.ExecProcessRequest{ID: c.ID, ExecID: "e", Spec: process}, &emptypb.Empty{}))
	waited, begun := make(chan error, 1), make(chan error, 1)
	go func() {
		_ = c.CallAll(func(call harness.Caller) error {
			go func() { waited <- call(ctx, "Wait", &api.WaitRequest{ID: c.ID, ExecID: "e"}, &api.WaitResponse{}) }()
			// A later call on the same connection is answered after the Wait was read.
			begun <- call(ctx, "State", &api.StateRequest{ID: c.ID}, &emptypb.Empty{})
			<-ctx.Done()
			return nil
		})
	}()
	harness.Check(t, <-begun)
	if err := c.Call(ctx, "Start", &api.StartRequest{ID: c.ID, ExecID: "e"}, &emptypb.Empty{}); err == nil {
		t.Error("a program that is not there was started")
	}
	select {
	case err := <-waited:
		if !errdefs.IsFailedPrecondition(err) {
			t.Errorf("wait answers %v", err)
		}
	case <-ctx.Done():
		t.Error("wait is not answered")
	}
	harness.Check(t, c.Call(ctx, "Delete", &api.DeleteRequest{ID: c.ID, ExecID: "e"}, &emptypb.Empty{}))
}
