// Package down holds the test in which containerd is away, workers are killed
// and processes end meanwhile. When it is back, it must learn everything as if
// it had been there.
package down

import (
	"context"
	"os"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

const (
	testLimit  = 5 * time.Minute // besides the time for which containerd is away
	eventLimit = 30 * time.Second
)

// away is how long containerd stays away: PERDURE_TEST_DOWN, which `make test`
// sets, else just as long as what happens meanwhile takes.
func away(t *testing.T) time.Duration {
	text := os.Getenv("PERDURE_TEST_DOWN")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("PERDURE_TEST_DOWN: %v", err)
	}
	return d
}

func TestContainerdAway(t *testing.T) {
	harness.NeedsPerdure(t)
	duration := away(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit+duration)
	s := &scene{t: t, h: h}
	s.begin(ctx)

	harness.Check(t, h.Stop(ctx))
	back := time.NewTimer(duration)
	s.killWorkers(ctx)
	s.end(ctx, s.execs)
	s.killWorkers(ctx)
	s.end(ctx, s.inits)
	s.killWorkers(ctx)
	<-back.C
	harness.Check(t, h.Start(ctx))

	for _, c := range s.containers {
		harness.Check(t, c.Load(ctx))
	}
	s.checkEvents()
	for _, p := range append(s.execs, s.inits...) {
		s.checkEnd(ctx, p)
	}
	s.checkSurvivor(ctx)
}

// killWorkers kills the worker of each shim.
func (s *scene) killWorkers(ctx context.Context) {
	s.t.Helper()
	for _, c := range s.containers {
		if c.ID == c.Group {
			_, err := c.KillWorker(ctx)
			harness.Check(s.t, err)
		}
	}
}
