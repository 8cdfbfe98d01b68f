// Package rest checks that a worker without work leaves, that its container
// needs none, and that a call, an exit or input brings the next one.
package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

const limit = 20 * time.Second

// start returns a harness whose workers leave after a tenth of a second.
func start(t *testing.T) (*harness.Harness, context.Context) {
	t.Helper()
	if daemon.Runtime() == harness.Stock {
		t.Skip("the stock shim has no worker that could leave")
	}
	h := harness.New(t, "PERDURE_IDLE_MS=100")
	ctx, cancel := context.WithTimeout(h.Context(), wait.Limit(2*time.Minute))
	t.Cleanup(cancel)
	return h, ctx
}

func TestCallAndExit(t *testing.T) {
	h, ctx := start(t)
	c, err := h.Run(ctx, "quiet", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	harness.Check(t, c.AwaitRest(ctx))
	if r, err := c.Sh(ctx, "e1", "echo again; exit 4"); err != nil || r.Code != 4 || r.Stdout != "again\n" {
		t.Errorf("an exec ended with %d, said %q: %v", r.Code, r.Stdout, err)
	}
	harness.Check(t, c.AwaitRest(ctx))
	harness.Check(t, c.SignalInit(15)) // nobody asks the shim: its exit brings the worker
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 143 {
		t.Errorf("the init ended with %d", exit.Code)
	}
	harness.Check(t, c.AwaitRest(ctx))
	harness.Check(t, c.DeleteTask(ctx))
	_, err = h.Events.Expect(limit, "quiet", "create", "start", "exec-added e1", "exec-started e1", "exit e1", "exit", "delete")
	harness.Check(t, err)
}

// A terminal's bytes go through the worker, in both directions.
func TestInput(t *testing.T) {
	h, ctx := start(t)
	in, out := io.Pipe()
	c, err := h.Run(ctx, "typed", harness.Config{Args: []string{"/bin/sh"}, Terminal: true, Stdin: in})
	harness.Check(t, err)
	for i := range 3 {
		harness.Check(t, c.Stdout.Await(limit, "# "))
		harness.Check(t, c.AwaitRest(ctx))
		_, err := fmt.Fprintf(out, "echo said-$((%d+1))\n", i)
		harness.Check(t, err)
		harness.Check(t, c.Stdout.Await(limit, fmt.Sprintf("said-%d\r\n", i+1)))
	}
	harness.Check(t, errors.Join(out.Close(), c.DeleteTask(ctx)))
}
