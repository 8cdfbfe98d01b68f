package lifecycle

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

func TestExecCodesAndOutput(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "exec", harness.Config{Args: harness.Sleep()})
	for _, code := range []uint32{0, 1, 2, 42, 127, 128, 255} {
		r, err := c.Sh(ctx, fmt.Sprintf("e%d", code), fmt.Sprintf("echo out-%d; echo err-%d >&2; exit %d", code, code, code))
		harness.Check(t, err)
		if r.Code != code || r.Stdout != fmt.Sprintf("out-%d\n", code) || r.Stderr != fmt.Sprintf("err-%d\n", code) {
			t.Errorf("exec with exit %d: got %d, %q, %q", code, r.Code, r.Stdout, r.Stderr)
		}
	}
}

func TestExecKilled(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "kill", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sleep", "1000"}})
	harness.Check(t, err)
	harness.Check(t, e.Kill(ctx, syscall.SIGKILL))
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	if r.Code != 137 {
		t.Errorf("a killed exec ended with %d", r.Code)
	}
}

func TestExecIDIsTakenOnce(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "ids", harness.Config{Args: harness.Sleep()})
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "same", Args: harness.Shell("exit 5")})
	harness.Check(t, err)
	if _, err := c.AddExec(ctx, harness.ExecConfig{ID: "same", Args: harness.Shell("exit 6")}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("an exec id used twice: %v, want already exists", err)
	}
	harness.Check(t, e.Start(ctx))
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	if r.Code != 5 {
		t.Errorf("the first exec ended with %d", r.Code)
	}
	if r, err = c.Sh(ctx, "same", "exit 6"); err != nil || r.Code != 6 {
		t.Errorf("the id used again after its delete: %d, %v", r.Code, err)
	}
}

func TestExecOfAProgramThatIsNotThere(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "absent", harness.Config{Args: harness.Sleep()})
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/no/such/program"}})
	harness.Check(t, err)
	if err := e.Start(ctx); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("start of a program that is not there: %v", err)
	}
	_, err = e.Delete(ctx)
	harness.Check(t, err)
	if r, err := c.Sh(ctx, "e2", "exit 0"); err != nil || r.Code != 0 {
		t.Errorf("the next exec: %d, %v", r.Code, err)
	}
}

func TestExecAfterInitsEndIsRefused(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "late", harness.Config{Args: harness.Sleep()})
	harness.Check(t, c.Kill(ctx, syscall.SIGKILL))
	_, err := c.Wait(ctx)
	harness.Check(t, err)
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("exit 0")})
	if err == nil {
		err = e.Start(ctx)
	}
	if err == nil {
		t.Error("an exec was started in a container whose init has ended")
	}
}

// A child that keeps its parent's stdout open must not keep the client waiting:
// one that waits for the exit, as dockerd does, is told at once, and one that
// reads output to its end, as ctr does, has it after the 10 s for which the
// stock shim waits too. The harness watches that nobody is in state D meanwhile.
func TestExecThatLeavesAChildBehind(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "child", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("echo out; sleep 1000 & exit 3")})
	harness.Check(t, err)
	exit, err := e.AwaitExit(ctx)
	harness.Check(t, err)
	if exit.Code != 3 {
		t.Errorf("it ended with %d", exit.Code)
	}
	harness.Check(t, e.Stdout.Await(limit, "out\n"))
	_, err = h.Events.Await(limit, "child", "exit e1")
	harness.Check(t, err)
	before := time.Now()
	_, err = e.Delete(ctx)
	harness.Check(t, err)
	if took := time.Since(before); took > 10*time.Second+wait.Limit(5*time.Second) {
		t.Errorf("the client had to wait for %v", took)
	}
}
