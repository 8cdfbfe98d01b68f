// Package recovery tests what the next worker makes of a runtime call that its
// predecessor did not see the end of, and of a runtime that dies itself.
package recovery

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
)

const limit = 30 * time.Second

// Two workers die around one create: the client's fifos see no end in between.
func TestTwiceInCreate(t *testing.T) {
	h, crashes := harness.NewWithCrashes(t)
	ctx := h.Within(t, time.Minute)
	points := []string{"create.after-launched", "create.after-outcome"}
	harness.Check(t, crashes.Arm(points...))
	c, err := h.Run(ctx, "twice", harness.Config{Args: harness.Shell("echo up; exit 7")})
	harness.Check(t, err)
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.AwaitEnd(limit))
	if exit.Code != 7 || c.Stdout.String() != "up\n" {
		t.Errorf("it ended with %d and said %q", exit.Code, c.Stdout.String())
	}
	for _, point := range points {
		harness.Check(t, crashes.Fired(point))
	}
}

// A create that failed is answered from the journal, not made again.
func TestFailedCreateIsNotRepeated(t *testing.T) {
	failing, dir := harness.Runtime(t, "create", "echo run >> $dir/runs; [[ $(grep -c run $dir/runs) = 2 ]] || exit 1")
	h, crashes := harness.NewWithCrashes(t)
	ctx := h.Within(t, time.Minute)
	harness.Check(t, crashes.Arm("create.after-outcome"))
	if _, err := h.Create(ctx, "fails", harness.Config{Args: harness.Sleep(), Options: failing}); err == nil {
		t.Error("the create has succeeded, at the second attempt")
	}
	harness.Check(t, crashes.Fired("create.after-outcome"))
	if runs, err := os.ReadFile(filepath.Join(dir, "runs")); err != nil || strings.Count(string(runs), "run") != 1 {
		t.Errorf("the runtime was called: %q, %v; want once", runs, err)
	}
}

// The runtime hangs in a start and the worker dies: the init can be killed all
// the same, and other calls do not wait.
func TestHangingStart(t *testing.T) {
	hanging, dir := harness.Runtime(t, "start", `$runc "$@"; touch $dir/started; read < $dir/gate; exit 0`)
	gate := filepath.Join(dir, "gate")
	harness.Check(t, unix.Mkfifo(gate, 0o600))
	h := harness.New(t)
	ctx := h.Within(t, time.Minute)
	c, err := h.Create(ctx, "hangs", harness.Config{Args: harness.Sleep(), Options: hanging})
	harness.Check(t, err)
	started := make(chan error, 1)
	go func() { started <- c.Task.Start(ctx) }()
	harness.Eventually(t, limit, "the runtime to hang", func() error {
		_, err := os.Stat(filepath.Join(dir, "started"))
		return err
	})
	_, err = c.KillWorker(ctx)
	harness.Check(t, err)
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Created {
		t.Errorf("status %v, %v; its start is not concluded", status, err)
	}
	harness.Check(t, c.Task.Kill(ctx, unix.SIGKILL))
	select {
	case err := <-started:
		t.Errorf("the start was concluded before the kill: %v", err)
	default:
	}
	open, err := os.OpenFile(gate, os.O_WRONLY, 0) // lets the runtime end
	harness.Check(t, err)
	harness.Check(t, open.Close())
	harness.Check(t, <-started)
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 137 {
		t.Errorf("it ended with %d, want 137", exit.Code)
	}
}

// What an init leaves in a pid namespace that it shares is killed, also when the
// worker dies over it; only then is the init's exit told.
func TestRestOfASharedNamespace(t *testing.T) {
	h, crashes := harness.NewWithCrashes(t)
	ctx := h.Within(t, time.Minute)
	pause, err := h.Run(ctx, "pause", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	c, err := h.Run(ctx, "member", harness.Config{Args: harness.Sleep(), Pod: "pause", SharePID: int(pause.Task.Pid())})
	harness.Check(t, err)
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	harness.Check(t, crashes.Arm("exit.after-record"))
	harness.Check(t, c.SignalInit(unix.SIGKILL))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, crashes.Fired("exit.after-record"))
	ended, err := e.AwaitExit(ctx)
	harness.Check(t, err)
	if exit.Code != 137 || ended.Code != 137 {
		t.Errorf("init and exec ended with %d and %d, want 137", exit.Code, ended.Code)
	}
	harness.Check(t, c.DeleteTask(ctx))
	_, err = h.Events.Expect(limit, "member", "create", "start", "exec-added e1", "exec-started e1", "exit e1", "exit", "delete")
	harness.Check(t, err)
}

// The runtime dies after it has started an exec, with or without its pid
// written: the process runs, is known to run, and is not started again.
func TestRuntimeDiesInExec(t *testing.T) {
	for name, script := range map[string]string{
		"with its pid":    `$runc "$@"; kill -9 $$`,
		"without its pid": `$runc "$@"; for f in "$@"; do [[ $f == *.pid ]] && rm -f $f; done; kill -9 $$`,
	} {
		t.Run(name, func(t *testing.T) {
			dying, _ := harness.Runtime(t, "exec", script)
			h := harness.New(t)
			ctx := h.Within(t, time.Minute)
			c, err := h.Run(ctx, "dies", harness.Config{Args: harness.Sleep(), Options: dying})
			harness.Check(t, err)
			e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("echo up; exec sleep 1000")})
			harness.Check(t, err)
			harness.Check(t, e.Stdout.Await(limit, "up\n"))
			if status, err := e.Status(ctx); err != nil || status.Status != client.Running {
				t.Errorf("its status is %v, %v", status, err)
			}
			harness.Check(t, e.Kill(context.WithoutCancel(ctx), unix.SIGTERM))
			if r, err := e.Finish(ctx); err != nil || r.Code != 143 || r.Stdout != "up\n" {
				t.Errorf("it ended with %d, %v, and said %q", r.Code, err, r.Stdout)
			}
		})
	}
}
