// Package lifecycle holds the tests of what any shim must do for containerd,
// with nothing dying meanwhile. They pass with the stock shim as well:
// PERDURE_TEST_RUNTIME=io.containerd.runc.v2.
package lifecycle

import (
	"context"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

// limit bounds every single wait of these tests. Most last milliseconds.
const limit = 20 * time.Second

// start returns a harness and a context for the calls of one test.
func start(t *testing.T) (*harness.Harness, context.Context) {
	t.Helper()
	h := harness.New(t)
	ctx, cancel := context.WithTimeout(h.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return h, ctx
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run starts a container, or ends the test.
func run(ctx context.Context, t *testing.T, h *harness.Harness, id string, cfg harness.Config) *harness.Container {
	t.Helper()
	c, err := h.Run(ctx, id, cfg)
	check(t, err)
	return c
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }
