package keeperdeath

import (
	"context"
	"io"

	"perdure/chaos-tests/harness"
)

// typed brings up a container with a terminal and an open stdin: what is typed wakes a worker that rests.
func (s *scene) typed(ctx context.Context) {
	s.t.Helper()
	in, out := io.Pipe()
	s.stdin = out
	s.t.Cleanup(func() { out.Close() })
	cfg := s.config(true)
	cfg.Stdin = in
	c, err := s.rec.Create(ctx, s.life, cfg)
	harness.Check(s.t, err)
	s.c = c
	harness.Check(s.t, s.rec.Start(ctx, s.life, c))
	harness.Check(s.t, c.Stdout.Await(limit, "ready"))
}

// input is what typed reads.
func (s *scene) input() io.Writer { return s.stdin }
