package api

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// TestPausedContainer: case 19, and what else may be done to a frozen container.
func TestPausedContainer(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "frozen", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	early, err := c.AddExec(ctx, harness.ExecConfig{ID: "early", Args: harness.Shell("exit 3")})
	harness.Check(t, err)
	harness.Check(t, c.Task.Pause(ctx))
	expect(ctx, t, c, client.Paused)

	// Past the client, which gives up the exec's stdio when its start is refused.
	err = c.Call(ctx, "Start", &api.StartRequest{ID: c.ID, ExecID: "early"}, &emptypb.Empty{})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("start of an exec in a paused container: %v", err)
	}
	_, err = c.AddExec(ctx, harness.ExecConfig{ID: "late", Args: harness.Shell("exit 3")})
	if err == nil {
		t.Error("an exec was added to a paused container")
	}
	if err := c.Task.Pause(ctx); err == nil {
		t.Error("it was paused twice")
	}
	if pids, err := c.Task.Pids(ctx); err != nil || len(pids) == 0 {
		t.Errorf("it has the processes %v, %v", pids, err)
	}
	if _, err := c.Task.Delete(ctx); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete of a paused container: %v", err)
	}

	harness.Check(t, c.Task.Resume(ctx))
	expect(ctx, t, c, client.Running)
	harness.Check(t, early.Start(ctx))
	if exit, err := early.AwaitExit(ctx); err != nil || exit.Code != 3 {
		t.Errorf("the exec that was refused before ended with %d, %v", exit.Code, err)
	}
	_, err = early.Delete(ctx)
	harness.Check(t, err)

	// Frozen processes do not die of SIGKILL with cgroup v1, unless they are thawed.
	harness.Check(t, c.Task.Pause(ctx))
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGKILL))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
		t.Errorf("the killed container ended with %d, %v", exit.Code, err)
	}
	_, err = h.Events.Expect(limit, "frozen", "create", "start", "exec-added early", "paused", "resumed",
		"exec-started early", "exit early", "paused", "exit")
	harness.Check(t, err)
}

// TestPauseSurvivesItsWorker: the next worker knows that the container is paused, and resumes it.
func TestPauseSurvivesItsWorker(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "frozen", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	harness.Check(t, c.Task.Pause(ctx))
	_, err = c.KillWorker(ctx)
	harness.Check(t, err)
	expect(ctx, t, c, client.Paused)
	if err := c.Task.Resume(ctx); err != nil {
		t.Errorf("resume: %v", err)
	}
	expect(ctx, t, c, client.Running)
	if r, err := c.Sh(ctx, "e", "exit 6"); err != nil || r.Code != 6 {
		t.Errorf("an exec ended with %d, %v", r.Code, err)
	}
}

// TestUpdate: the limit is in the cgroup, holds, and is there for the next worker to change.
func TestUpdate(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "limited", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	for _, pids := range []int64{50, 9} {
		harness.Check(t, c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}})))
		if got := pidsMax(t, c); got != fmt.Sprint(pids) {
			t.Errorf("pids.max is %s, want %d", got, pids)
		}
	}
	r, err := c.Sh(ctx, "forks", "i=0; while [ $i -lt 20 ]; do sleep 1000 >/dev/null 2>&1 & i=$((i+1)); done")
	if err != nil || r.Code == 0 {
		t.Errorf("more processes than the limit allows: %d, %v", r.Code, err)
	}
	if err := c.Task.Update(ctx, client.WithResources("no resources")); err == nil {
		t.Error("an update with something else than resources was accepted")
	}
}

// pidsMax reads the limit off the container's cgroup, in either version.
func pidsMax(t *testing.T, c *harness.Container) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.Task.Pid()))
	harness.Check(t, err)
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		dir := ""
		switch {
		case parts[1] == "pids":
			dir = "/sys/fs/cgroup/pids" + parts[2]
		case parts[1] == "":
			dir = "/sys/fs/cgroup" + parts[2]
		}
		if limit, err := os.ReadFile(dir + "/pids.max"); err == nil {
			return strings.TrimSpace(string(limit))
		}
	}
	t.Fatalf("no pids.max for %s", text)
	return ""
}

// TestDeadline: a create whose client has given it a deadline ends with it, and leaves nothing half made.
func TestDeadline(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	anchor, err := h.Run(ctx, "anchor", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	gates, err := h.NewGates("hook")
	harness.Check(t, err)
	// The bundle of a container that containerd has made and deleted again would be gone, so it is made by hand.
	bundle := hangingBundle(t, h, anchor, gates)

	short, cancel := context.WithTimeout(ctx, limit/20)
	defer cancel()
	req := &api.CreateTaskRequest{ID: "slow", Bundle: bundle, Rootfs: []*types.Mount{{
		Type: "bind", Source: filepath.Join(h.Bundle(h.Namespace, anchor.ID), "rootfs"), Options: []string{"rbind", "rw"},
	}}}
	err = anchor.Call(short, "Create", req, &emptypb.Empty{})
	if !errdefs.IsDeadlineExceeded(err) && short.Err() == nil {
		t.Errorf("create in vain: %v", err)
	}
	harness.Check(t, wait.Until(ctx, limit, "the half made container to be gone", func() error {
		left, err := os.ReadDir(bundle)
		if err == nil && len(left) != 2 {
			err = fmt.Errorf("the bundle has %v; want config.json and rootfs", left)
		}
		return err
	}))
	harness.Check(t, gates.Open("hook"))
	resp := &api.CreateTaskResponse{}
	harness.Check(t, anchor.Call(ctx, "Create", req, resp))
	if resp.Pid == 0 {
		t.Error("the id cannot be used again")
	}
	harness.Check(t, anchor.Call(ctx, "Delete", &api.DeleteRequest{ID: "slow"}, &emptypb.Empty{}))
}
