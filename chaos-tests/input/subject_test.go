// Package input gives the shim what it must refuse: on its command line, as
// bytes on its socket, and as calls. Each must be a clear error to the caller,
// do the shim and its container no harm, and leave nothing behind.
package input

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

const (
	limit     = 20 * time.Second
	testLimit = 2 * time.Minute
)

// subject is a running container whose shim gets bad input.
type subject struct {
	h      *harness.Harness
	c      *harness.Container
	socket string
	keeper int
	worker int
	files  map[string][]string
}

func newSubject(t *testing.T) *subject {
	t.Helper()
	harness.NeedsPerdure(t)
	s := &subject{h: harness.New(t)}
	ctx := s.h.Within(t, testLimit)
	var err error
	s.c, err = s.h.Run(ctx, "subject", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	s.socket, err = s.c.Socket()
	harness.Check(t, err)
	s.keeper, err = s.c.Keeper()
	harness.Check(t, err)
	s.worker, err = s.c.Worker(ctx)
	harness.Check(t, err)
	s.files = s.places(t)
	return s
}

// places lists what is where a shim could leave something.
func (s *subject) places(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, dir := range []string{
		s.h.Sockets(),
		filepath.Dir(s.h.Bundle(s.h.Namespace, "x")),
		s.h.Bundle(s.h.Namespace, s.c.ID),
		filepath.Join(s.h.Bundle(s.h.Namespace, s.c.ID), "perdure"),
		filepath.Join("/run/containerd/runc", s.h.Namespace),
	} {
		found[dir] = list(t, dir)
	}
	return found
}

// try runs one attempt and checks that it has left no trace.
func (s *subject) try(t *testing.T, name string, attempt func(ctx context.Context, t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		ctx := s.h.Within(t, testLimit)
		attempt(ctx, t)
		s.check(ctx, t)
	})
}

// check fails the test unless the same two processes still serve the container
// and no file has come or gone.
func (s *subject) check(ctx context.Context, t *testing.T) {
	t.Helper()
	if r, err := s.c.Sh(ctx, "after", "exit 17"); err != nil || r.Code != 17 {
		t.Errorf("an exec afterwards ended with %d: %v", r.Code, err)
	}
	if keeper, err := s.c.Keeper(); err != nil || keeper != s.keeper {
		t.Errorf("the keeper was %d and is %d (%v)", s.keeper, keeper, err)
	}
	if worker, err := s.c.Worker(ctx); err != nil || worker != s.worker {
		t.Errorf("the worker was %d and is %d (%v)", s.worker, worker, err)
	}
	if now := s.places(t); !maps.EqualFunc(s.files, now, slices.Equal) {
		t.Errorf("files were %v\nand are %v", s.files, now)
	}
	harness.Check(t, s.c.CheckJournal(ctx))
}

// empty returns a directory that is no bundle.
func empty(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "empty")
	harness.Check(t, os.Mkdir(dir, 0o700))
	return dir
}

// names fails the test unless the error has one of the codes' words in it and
// all of what the caller has to know.
func names(t *testing.T, err error, is func(error) bool, words ...string) {
	t.Helper()
	if err == nil || !is(err) {
		t.Errorf("the error is %v, which is of another class", err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error is %q, want %q in it", err, word)
		}
	}
}
