package stdio

import (
	"context"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

// callLimit is what a call may take while some output stands still.
const callLimit = 5 * time.Second

// Case 18: a client that does not read its output holds up the process that
// writes it, and nothing else; what was written is there when it comes back.
func TestAReaderThatIsGone(t *testing.T) {
	h, ctx := start(t)
	gates, err := h.NewGates("go")
	harness.Check(t, err)
	const lines = 60000
	c := run(ctx, t, h, "unread", harness.Config{
		Args: harness.Shell("echo first; " + gates.Await("go") + "seq 60000; exit 3"), Mounts: mounts(gates.Mount()),
	})
	harness.Check(t, c.Stdout.Await(limit, "first\n"))
	harness.Check(t, c.Detach())
	harness.Check(t, gates.Open("go"))
	for range 3 {
		soon(ctx, t, func(ctx context.Context) {
			_, err := c.Task.Status(ctx)
			harness.Check(t, err)
			r, err := c.Sh(ctx, "e1", "echo exec; exit 2")
			harness.Check(t, err)
			if r.Code != 2 || r.Stdout != "exec\n" {
				t.Errorf("an exec beside it ended with %d and said %q", r.Code, r.Stdout)
			}
		})
	}
	harness.Check(t, c.Attach())
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.AwaitEnd(limit))
	if got := c.Stdout.String(); exit.Code != 3 || strings.Count(got, "\n") != lines+1 || !strings.HasSuffix(got, "\n60000\n") {
		t.Errorf("it ended with %d, and %d bytes arrived", exit.Code, len(got))
	}
}

func soon(ctx context.Context, t *testing.T, do func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	do(ctx)
}

// Case 18: an error of the runtime that is longer than any buffer still says
// what was wrong.
func TestALongErrorNamesItsCause(t *testing.T) {
	harness.NeedsPerdure(t) // the stock shim of containerd 2.4.2 hangs: the case itself
	h, ctx := start(t)
	long := "/" + strings.Repeat("long/", 20000) + "path"
	check := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "file name too long") {
			t.Errorf("it says %.300v", err)
		}
	}
	c, err := h.Create(ctx, "long", harness.Config{Args: []string{long}})
	check(err)
	harness.Check(t, c.Remove(ctx))
	c = run(ctx, t, h, "short", harness.Config{Args: harness.Sleep()})
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: []string{long}})
	harness.Check(t, err)
	check(e.Start(ctx))
	if r, err := c.Sh(ctx, "e2", "exit 4"); err != nil || r.Code != 4 {
		t.Errorf("an exec after it ended with %d: %v", r.Code, err)
	}
}
