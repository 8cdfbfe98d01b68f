package harness

import (
	"context"
	"testing"
	"time"

	"perdure/chaos-tests/wait"
)

// Check ends the test if there is an error.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Shell returns the arguments that run a script.
func Shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// Within returns a context in the test's namespace that ends after
// wait.Limit(limit), or with the test.
func (h *Harness) Within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(h.Context(), wait.Limit(limit))
	t.Cleanup(cancel)
	return ctx
}
