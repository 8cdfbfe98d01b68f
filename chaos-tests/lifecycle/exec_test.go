package lifecycle

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
)

func TestExecCodesAndOutput(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "exec", harness.Config{Args: harness.Sleep()})
	for _, code := range []uint32{0, 1, 2, 42, 127, 128, 255} {
		r, err := c.Sh(ctx, fmt.Sprintf("e%d", code), fmt.Sprintf("echo out-%d; echo err-%d >&2; exit %d", code, code, code))
		check(t, err)
		if r.Code != code || r.Stdout != fmt.Sprintf("out-%d\n", code) || r.Stderr != fmt.Sprintf("err-%d\n", code) {
			t.Errorf("exec with exit %d: got %d, %q, %q", code, r.Code, r.Stdout, r.Stderr)
		}
	}
}

func TestExecKilled(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "kill", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sleep", "1000"}})
	check(t, err)
	check(t, e.Kill(ctx, syscall.SIGKILL))
	r, err := e.Finish(ctx)
	check(t, err)
	if r.Code != 137 {
		t.Errorf("a killed exec ended with %d", r.Code)
	}
}

func TestExecIDIsTakenOnce(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "ids", harness.Config{Args: harness.Sleep()})
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "same", Args: shell("exit 5")})
	check(t, err)
	if _, err := c.AddExec(ctx, harness.ExecConfig{ID: "same", Args: shell("exit 6")}); !errdefs.IsAlreadyExists(err) {
		t.Errorf("an exec id used twice: %v, want already exists", err)
	}
	check(t, e.Start(ctx))
	r, err := e.Finish(ctx)
	check(t, err)
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
	check(t, err)
	if err := e.Start(ctx); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Errorf("start of a program that is not there: %v", err)
	}
	_, err = e.Delete(ctx)
	check(t, err)
	if r, err := c.Sh(ctx, "e2", "exit 0"); err != nil || r.Code != 0 {
		t.Errorf("the next exec: %d, %v", r.Code, err)
	}
}

func TestExecAfterInitsEndIsRefused(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "late", harness.Config{Args: harness.Sleep()})
	check(t, c.Kill(ctx, syscall.SIGKILL))
	_, err := c.Wait(ctx)
	check(t, err)
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: shell("exit 0")})
	if err == nil {
		err = e.Start(ctx)
	}
	if err == nil {
		t.Error("an exec was started in a container whose init has ended")
	}
}

// A child that keeps its parent's stdout open must not keep the client waiting.
func TestExecThatLeavesAChildBehind(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "child", harness.Config{Args: harness.Sleep()})
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: shell("echo out; sleep 1000 & exit 3")})
	check(t, err)
	exit, err := e.AwaitExit(ctx)
	check(t, err)
	if exit.Code != 3 {
		t.Errorf("it ended with %d", exit.Code)
	}
	check(t, e.Stdout.Await(limit, "out\n"))
	before := time.Now()
	_, err = e.Delete(ctx)
	check(t, err)
	if took := time.Since(before); took > 15*time.Second {
		t.Errorf("the client had to wait for %v", took)
	}
}
