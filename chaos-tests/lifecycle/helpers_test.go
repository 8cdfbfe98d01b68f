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
	return h, h.Within(t, 3*time.Minute)
}

// run starts a container, or ends the test.
func run(ctx context.Context, t *testing.T, h *harness.Harness, id string, cfg harness.Config) *harness.Container {
	t.Helper()
	c, err := h.Run(ctx, id, cfg)
	harness.Check(t, err)
	return c
}
