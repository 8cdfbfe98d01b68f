package lifecycle

import (
	"context"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

// restart stops the daemon, does meanwhile, and starts it again.
func restart(ctx context.Context, t *testing.T, h *harness.Harness, meanwhile func()) {
	t.Helper()
	harness.Check(t, h.Stop(ctx))
	meanwhile()
	harness.Check(t, h.Start(ctx))
}

func TestRunningTaskOverARestart(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "running", harness.Config{Args: harness.Sleep()})
	keeper, err := c.Keeper()
	harness.Check(t, err)
	pid := c.Task.Pid()

	restart(ctx, t, h, func() {})

	harness.Check(t, c.Load(ctx))
	if now, err := c.Keeper(); err != nil || now != keeper || c.Task.Pid() != pid {
		t.Errorf("shim and init were %d and %d, they are %d (%v) and %d", keeper, pid, now, err, c.Task.Pid())
	}
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != client.Running {
		t.Errorf("the running task is %q", status.Status)
	}
	if r, err := c.Sh(ctx, "e1", "exit 21"); err != nil || r.Code != 21 {
		t.Errorf("an exec after the restart ended with %d: %v", r.Code, err)
	}
}

// needsPids skips a test in which containerd 1.7 and later, when they start,
// ask a stopped task for its pids and delete it if there are none: the stock
// shim then loses the exit status.
func needsPids(t *testing.T) {
	t.Helper()
	if daemon.Runtime() == harness.Stock {
		t.Skip("runtime " + harness.Stock + " loses stopped tasks when containerd starts")
	}
}

func TestStoppedTaskOverARestart(t *testing.T) {
	needsPids(t)
	h, ctx := start(t)
	c := run(ctx, t, h, "stopped", harness.Config{Args: harness.Shell("exit 7")})
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	// What containerd has taken but not yet passed on dies with it.
	_, err = h.Events.Await(limit, "stopped", "exit")
	harness.Check(t, err)

	restart(ctx, t, h, func() {})

	harness.Check(t, c.Load(ctx))
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != client.Stopped || status.ExitStatus != 7 || !status.ExitTime.Equal(exit.At) {
		t.Errorf("the stopped task is %+v, want 7 at %v", status, exit.At)
	}
	deleted, err := c.Task.Delete(ctx)
	harness.Check(t, err)
	if deleted.ExitCode() != 7 {
		t.Errorf("its delete says %d", deleted.ExitCode())
	}
	_, err = h.Events.Expect(limit, "stopped", "create", "start", "exit", "delete")
	harness.Check(t, err)
}

// The init ends while nobody listens.
func TestEndWhileContainerdIsDown(t *testing.T) {
	needsPids(t)
	h, ctx := start(t)
	c := run(ctx, t, h, "alone", harness.Config{Args: harness.Sleep()})
	pid := int(c.Task.Pid())
	_, err := h.Events.Await(limit, "alone", "start") // containerd has it; so have we, before it goes
	harness.Check(t, err)
	restart(ctx, t, h, func() {
		harness.Check(t, c.SignalInit(syscall.SIGTERM))
		harness.Check(t, harness.AwaitEnd(ctx, pid))
	})
	harness.Check(t, c.Load(ctx))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 143 {
		t.Errorf("it ended with %d, want 143", exit.Code)
	}
	harness.Check(t, c.DeleteTask(ctx))
	_, err = h.Events.Expect(limit, "alone", "create", "start", "exit", "delete")
	harness.Check(t, err)
}
