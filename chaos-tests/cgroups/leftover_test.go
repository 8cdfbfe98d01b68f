package cgroups

import (
	"context"
	"fmt"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// leaver is an init in the pid namespace of another container that leaves processes
// behind, in sessions of their own, and ends with 7 when it is told to.
const leaver = `for i in 1 2 3; do setsid sh -c 'trap "" TERM HUP; while :; do sleep 1000; done' >/dev/null 2>&1 & done; echo up; trap 'exit 7' TERM; while :; do sleep 1000 >/dev/null 2>&1 & wait $!; done`

func startLeaver(ctx context.Context, t *testing.T, h *harness.Harness, id string) (*harness.Container, string) {
	t.Helper()
	host, err := h.Run(ctx, id+"-host", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	c, err := h.Run(ctx, id, harness.Config{Args: harness.Shell(leaver), SharePID: int(host.Task.Pid())})
	harness.Check(t, err)
	dir, err := cgroup(c.Task.Pid())
	harness.Check(t, err)
	harness.Check(t, wait.Until(ctx, limit, "the processes that will be left", func() error {
		pids, err := processes(dir)
		if err == nil && len(pids) < 8 { // init and its sleep, three shells with theirs
			err = fmt.Errorf("there are %v", pids)
		}
		return err
	}))
	return c, dir
}

// ended checks that the init has ended with 7 and that nobody was left by then, and that nobody
// has waited for a process that has lost its parent.
func ended(ctx context.Context, t *testing.T, c *harness.Container, dir string) {
	t.Helper()
	began := time.Now()
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 7 {
		t.Errorf("the init ended with %d, want 7", exit.Code)
	}
	if pids, err := processes(dir); len(pids) > 0 {
		t.Errorf("its exit is told, and there are still %v (%v)", pids, err)
	}
	if took := time.Since(began); took > wait.Limit(limit/3) {
		t.Errorf("its exit was told after %v", took)
	}
}

// TestLeftBehind: what an init without a pid namespace of its own leaves is ended before its exit
// is told, also where no exec lives.
func TestLeftBehind(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, dir := startLeaver(ctx, t, h, "leaver")
	harness.Check(t, c.SignalInit(15))
	ended(ctx, t, c, dir)
	harness.Check(t, c.DeleteTask(ctx))
	_, err := h.Events.Expect(limit, "leaver", "create", "start", "exit", "delete")
	harness.Check(t, err)
}

// TestLeftBehindWithExec: execs are ended too, and told before.
func TestLeftBehindWithExec(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, dir := startLeaver(ctx, t, h, "leaver")
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: harness.Shell("trap '' TERM; sleep 1000 & wait; sleep 1000")})
	harness.Check(t, err)
	harness.Check(t, c.SignalInit(15))
	ended(ctx, t, c, dir)
	if exit, err := e.AwaitExit(ctx); err != nil || exit.Code != 137 {
		t.Errorf("the exec ended with %d, %v", exit.Code, err)
	}
	harness.Check(t, c.DeleteTask(ctx))
	_, err = h.Events.Expect(limit, "leaver", "create", "start", "exec-added e", "exec-started e", "exit e", "exit", "delete")
	harness.Check(t, err)
}

// TestLeftBehindByAKilledWorker: the next one goes on with it.
func TestLeftBehindByAKilledWorker(t *testing.T) {
	h, crashes := harness.NewWithCrashes(t)
	ctx := h.Within(t, testLimit)
	for i, point := range []string{"exit.before-record", "exit.after-record"} {
		c, dir := startLeaver(ctx, t, h, fmt.Sprintf("leaver%d", i))
		harness.Check(t, crashes.Arm(point))
		harness.Check(t, c.SignalInit(15))
		ended(ctx, t, c, dir)
		harness.Check(t, crashes.Fired(point))
	}
	c, dir := startLeaver(ctx, t, h, "leaver")
	harness.Check(t, crashes.Arm())
	harness.Check(t, c.SignalInit(15))
	_, err := c.KillWorker(ctx) // wherever it is
	harness.Check(t, err)
	ended(ctx, t, c, dir)
}
