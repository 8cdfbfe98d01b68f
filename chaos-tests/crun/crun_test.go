// Package crun tests that what works with runc works with crun as the runtime
// binary: created, started, executed in, with terminals, killed, paused, deleted,
// and all of it with the worker killed in between.
package crun

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
)

const (
	limit     = 30 * time.Second
	testLimit = 2 * time.Minute
)

// scene is a container of crun's that runs.
type scene struct {
	h       *harness.Harness
	options *runcoptions.Options
}

func newScene(t *testing.T) scene {
	t.Helper()
	options := harness.Crun(t) // before the harness, whose clean-up needs it
	return scene{harness.New(t), options}
}

func (s scene) create(ctx context.Context, id string, cfg harness.Config) (*harness.Container, error) {
	cfg.Options, cfg.Spec = s.options, append(cfg.Spec, harness.CrunSpec)
	return s.h.Create(ctx, id, cfg)
}

func (s scene) run(ctx context.Context, t *testing.T, id string, cfg harness.Config) *harness.Container {
	t.Helper()
	c, err := s.create(ctx, id, cfg)
	harness.Check(t, err)
	harness.Check(t, c.Task.Start(ctx))
	return c
}

// kill ends the worker, where there is one.
func kill(ctx context.Context, t *testing.T, c *harness.Container) {
	t.Helper()
	if c.Runtime != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
	}
}

func TestLife(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c, err := s.create(ctx, "life", harness.Config{Args: harness.Shell("echo out; echo err >&2; exit 7")})
	harness.Check(t, err)
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Created {
		t.Errorf("a created task is %v, %v", status, err)
	}
	kill(ctx, t, c)
	harness.Check(t, c.Task.Start(ctx))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.AwaitEnd(limit))
	if exit.Code != 7 || c.Stdout.String() != "out\n" || c.Stderr.String() != "err\n" {
		t.Errorf("it ended with %d and said %q, %q", exit.Code, c.Stdout.String(), c.Stderr.String())
	}
	kill(ctx, t, c)
	if err := c.Task.Start(ctx); err == nil {
		t.Error("it was started a second time")
	}
	harness.Check(t, c.Remove(ctx))
	_, err = s.h.Events.Expect(limit, "life", "create", "start", "exit", "delete")
	harness.Check(t, err)
}

func TestExecs(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "execs", harness.Config{Args: harness.Sleep()})
	for i, code := range []uint32{0, 3, 127, 255} {
		r, err := c.Sh(ctx, fmt.Sprintf("e%d", i), fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		if err != nil || r.Code != code || r.Stdout != "out\n" || r.Stderr != "err\n" {
			t.Errorf("exec with exit %d: %+v, %v", code, r, err)
		}
	}
	long, err := c.Exec(ctx, harness.ExecConfig{ID: "long", Args: harness.Shell("trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait $!; done")})
	harness.Check(t, err)
	harness.Check(t, long.Stdout.Await(limit, "ready\n"))
	kill(ctx, t, c)
	harness.Check(t, long.Kill(ctx, syscall.SIGTERM))
	if exit, err := long.AwaitExit(ctx); err != nil || exit.Code != 9 {
		t.Errorf("over a worker's death the exec ended with %d, %v", exit.Code, err)
	}
	_, err = long.Delete(ctx)
	harness.Check(t, err)
	absent, err := c.AddExec(ctx, harness.ExecConfig{ID: "absent", Args: []string{"/no/such/program"}})
	harness.Check(t, err)
	if err := absent.Start(ctx); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("a program that is not there: %v", err)
	}
	_, err = absent.Delete(ctx)
	harness.Check(t, err)
}

func TestTerminals(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	in, out := io.Pipe()
	c := s.run(ctx, t, "tty", harness.Config{Args: []string{"/bin/sh"}, Terminal: true, Stdin: in})
	harness.Check(t, c.Task.Resize(ctx, 91, 17))
	typed(t, out, "stty size\n")
	harness.Check(t, c.Stdout.Await(limit, "17 91\r\n"))
	execIn, execOut := io.Pipe()
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: []string{"/bin/sh"}, Terminal: true, Stdin: execIn})
	harness.Check(t, err)
	kill(ctx, t, c)
	typed(t, execOut, "tty; exit 11\n")
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	harness.Check(t, execOut.Close())
	if r.Code != 11 || !strings.Contains(r.Stdout, "/dev/pts/") {
		t.Errorf("the exec ended with %d and said %q", r.Code, r.Stdout)
	}
	typed(t, out, "echo still-there; exit 12\n")
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Stdout.Await(limit, "still-there\r\n"))
	harness.Check(t, out.Close())
	if exit.Code != 12 {
		t.Errorf("the init ended with %d", exit.Code)
	}
}

func typed(t *testing.T, w io.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	harness.Check(t, err)
}

func TestKills(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "kills", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	kill(ctx, t, c)
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGKILL, client.WithKillAll))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	ended, err := e.AwaitExit(ctx)
	harness.Check(t, err)
	if exit.Code != 137 || ended.Code != 137 {
		t.Errorf("init and exec ended with %d and %d", exit.Code, ended.Code)
	}
	for what, err := range map[string]error{"the init": c.Task.Kill(ctx, syscall.SIGKILL), "the exec": e.Kill(ctx, syscall.SIGKILL)} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("a kill of %s after its end: %v, want not found", what, err)
		}
	}
}

func TestPause(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "pause", harness.Config{Args: harness.Sleep()})
	status := func(want client.ProcessStatus) {
		t.Helper()
		if got, err := c.Task.Status(ctx); err != nil || got.Status != want {
			t.Errorf("it is %v, %v; want %s", got, err, want)
		}
	}
	harness.Check(t, c.Task.Pause(ctx))
	status(client.Paused)
	kill(ctx, t, c)
	status(client.Paused)
	if _, err := c.Sh(ctx, "refused", "exit 0"); err == nil {
		t.Error("an exec was started in a paused container")
	}
	harness.Check(t, c.Task.Resume(ctx))
	status(client.Running)
	if r, err := c.Sh(ctx, "e", "exit 5"); err != nil || r.Code != 5 {
		t.Errorf("an exec after the resume: %d, %v", r.Code, err)
	}
}

// TestKilledWhilePaused: the stock shim does not thaw a container that crun has
// frozen in a cgroup of version 1, where SIGKILL waits for the thaw.
func TestKilledWhilePaused(t *testing.T) {
	harness.NeedsPerdure(t)
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "frozen", harness.Config{Args: harness.Sleep()})
	harness.Check(t, c.Task.Pause(ctx))
	kill(ctx, t, c)
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGKILL))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
		t.Errorf("killed while paused it ended with %d, %v", exit.Code, err)
	}
}

func TestPidsAndMetrics(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "pids", harness.Config{Args: []string{"/bin/sleep", "1000"}})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	kill(ctx, t, c)
	pids, err := c.Task.Pids(ctx)
	harness.Check(t, err)
	got := map[uint32]bool{}
	for _, p := range pids {
		got[p.Pid] = true
	}
	if len(got) != 2 || !got[c.Task.Pid()] || !got[e.Pid()] {
		t.Errorf("pids are %v, want %d and %d", got, c.Task.Pid(), e.Pid())
	}
	if m, err := c.Task.Metrics(ctx); err != nil || m.Data == nil {
		t.Errorf("metrics: %v, %v", m, err)
	}
	harness.Check(t, e.Kill(ctx, syscall.SIGKILL))
	_, err = e.Finish(ctx)
	harness.Check(t, err)
}

// TestFailedCreate: what crun says is told, and nothing is left.
func TestFailedCreate(t *testing.T) {
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c, err := s.create(ctx, "fails", harness.Config{Args: []string{"/no/such/program"}})
	if err == nil {
		err = c.Task.Start(ctx) // crun 1.8.1 looks for the program only then, or at once
	}
	if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("the error is %v", err)
	}
	harness.Check(t, c.Remove(ctx))
}

// TestPod: several containers of one shim, one of another runtime binary.
func TestPod(t *testing.T) {
	harness.NeedsPerdure(t)
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	pause := s.run(ctx, t, "sandbox", harness.Config{Args: harness.Sleep()})
	app := s.run(ctx, t, "app", harness.Config{Args: harness.Sleep(), Pod: "sandbox", SharePID: int(pause.Task.Pid())})
	other, err := s.h.Run(ctx, "other", harness.Config{Args: harness.Sleep(), Pod: "sandbox"})
	harness.Check(t, err)
	kill(ctx, t, app)
	for _, c := range []*harness.Container{app, other} {
		if r, err := c.Sh(ctx, "e", "exit 6"); err != nil || r.Code != 6 {
			t.Errorf("an exec in %s: %d, %v", c.ID, r.Code, err)
		}
	}
	e, err := app.Exec(ctx, harness.ExecConfig{ID: "rest", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	harness.Check(t, app.SignalInit(syscall.SIGKILL)) // no pid namespace of its own ends the exec
	exit, err := app.Wait(ctx)
	harness.Check(t, err)
	ended, err := e.AwaitExit(ctx)
	harness.Check(t, err)
	if exit.Code != 137 || ended.Code != 137 {
		t.Errorf("init and exec ended with %d and %d", exit.Code, ended.Code)
	}
}

// TestDaemonAway: the container ends while containerd is away.
func TestDaemonAway(t *testing.T) {
	harness.NeedsPerdure(t)
	s := newScene(t)
	ctx := s.h.Within(t, testLimit)
	c := s.run(ctx, t, "away", harness.Config{Args: harness.Sleep()})
	harness.Check(t, s.h.Stop(ctx))
	kill(ctx, t, c)
	harness.Check(t, c.SignalInit(syscall.SIGTERM))
	harness.Check(t, s.h.Start(ctx))
	harness.Check(t, c.Load(ctx))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 143 {
		t.Errorf("it ended with %d, %v", exit.Code, err)
	}
	harness.Check(t, c.Remove(ctx))
	_, err := s.h.Events.Expect(limit, "away", "create", "start", "exit", "delete")
	harness.Check(t, err)
}
