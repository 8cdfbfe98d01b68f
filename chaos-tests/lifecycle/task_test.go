package lifecycle

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
)

func TestExitCodes(t *testing.T) {
	h, ctx := start(t)
	for _, code := range []uint32{0, 1, 7, 137, 255} {
		id := fmt.Sprintf("code-%d", code)
		before := time.Now()
		c := run(ctx, t, h, id, harness.Config{Args: harness.Shell(fmt.Sprintf("exit %d", code))})
		exit, err := c.Wait(ctx)
		harness.Check(t, err)
		if exit.Code != code {
			t.Errorf("%s: Wait says %d", id, exit.Code)
		}
		if exit.At.Before(before) || exit.At.After(time.Now()) {
			t.Errorf("%s: ended at %v, which is not between the start at %v and now", id, exit.At, before)
		}
		deleted, err := c.Task.Delete(ctx)
		harness.Check(t, err)
		if deleted.ExitCode() != code || !deleted.ExitTime().Equal(exit.At) {
			t.Errorf("%s: Delete says %d at %v, Wait %d at %v", id, deleted.ExitCode(), deleted.ExitTime(), code, exit.At)
		}
	}
}

// A whole life in the order that clients rely on.
func TestEventsOfALife(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "life", harness.Config{Args: harness.Sleep()})
	result, err := c.Sh(ctx, "e1", "exit 3")
	harness.Check(t, err)
	pid := c.Task.Pid()
	harness.Check(t, c.Kill(ctx, syscall.SIGKILL))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.DeleteTask(ctx))

	events, err := h.Events.Expect(limit, "life",
		"create", "start", "exec-added e1", "exec-started e1", "exit e1", "exit", "delete")
	harness.Check(t, err)
	for i, want := range []struct {
		pid    uint32
		status uint32
	}{{pid, 0}, {pid, 0}, {0, 0}, {uint32(result.Pid), 0}, {uint32(result.Pid), 3}, {pid, 137}, {pid, 137}} {
		if e := events[i]; e.Pid != want.pid || e.Status != want.status {
			t.Errorf("event %q has pid %d and status %d, want %d and %d", e, e.Pid, e.Status, want.pid, want.status)
		}
	}
	if at := events[5].ExitedAt; !at.Equal(exit.At) {
		t.Errorf("the exit event is of %v, Wait says %v", at, exit.At)
	}
}

func TestDeleteOfARunningTaskIsRefused(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "running", harness.Config{Args: harness.Sleep()})
	if _, err := c.Task.Delete(ctx); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete of a running task: %v, want failed precondition", err)
	}
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != client.Running {
		t.Errorf("status after the refused delete is %q", status.Status)
	}
}

func TestCreatedTask(t *testing.T) {
	h, ctx := start(t)
	c, err := h.Create(ctx, "created", harness.Config{Args: harness.Shell("exit 4")})
	harness.Check(t, err)
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != client.Created || c.Task.Pid() == 0 {
		t.Errorf("a created task has status %q and pid %d", status.Status, c.Task.Pid())
	}
	harness.Check(t, c.Task.Start(ctx))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 4 {
		t.Errorf("it ended with %d, %v", exit.Code, err)
	}
}

func TestWaitOfTwoClients(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "two", harness.Config{Args: harness.Sleep()})
	second, err := client.New(h.Address())
	harness.Check(t, err)
	defer second.Close()
	loaded, err := second.LoadContainer(ctx, "two")
	harness.Check(t, err)
	task, err := loaded.Task(ctx, nil)
	harness.Check(t, err)
	exits, err := task.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Kill(ctx, syscall.SIGTERM))
	first, err := c.Wait(ctx)
	harness.Check(t, err)
	if status := <-exits; status.ExitCode() != first.Code || !status.ExitTime().Equal(first.At) {
		t.Errorf("one client sees %d at %v, the other %d at %v", first.Code, first.At, status.ExitCode(), status.ExitTime())
	}
	if first.Code != 143 {
		t.Errorf("an init that exits 143 at SIGTERM ended with %d", first.Code)
	}
}

func TestKillOfAnEndedProcessIsNotFound(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "ended", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("exit 0")})
	harness.Check(t, err)
	_, err = e.AwaitExit(ctx)
	harness.Check(t, err)
	if err := e.Kill(ctx, syscall.SIGKILL); !errdefs.IsNotFound(err) {
		t.Errorf("kill of an ended exec: %v, want not found", err)
	}
	_, err = e.Delete(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Kill(ctx, syscall.SIGKILL))
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	if err := c.Task.Kill(ctx, syscall.SIGKILL); !errdefs.IsNotFound(err) {
		t.Errorf("kill of an ended task: %v, want not found", err)
	}
}

func TestPids(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "pids", harness.Config{Args: []string{"/bin/sleep", "1000"}})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	pids, err := c.Task.Pids(ctx)
	harness.Check(t, err)
	got := map[uint32]bool{}
	for _, p := range pids {
		got[p.Pid] = true
	}
	if len(got) != 2 || !got[c.Task.Pid()] || !got[e.Pid()] {
		t.Errorf("pids are %v, want %d and %d", got, c.Task.Pid(), e.Pid())
	}
	harness.Check(t, e.Kill(ctx, syscall.SIGKILL))
	_, err = e.Finish(ctx)
	harness.Check(t, err)
}
