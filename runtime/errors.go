package runtime

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// classes is the one place where a runtime's words get a meaning. The first row whose
// operation and text fit decides; no operations means any. The texts are those of runc
// 1.1.5 to 1.5 and of crun 1.8; errors_test.go has them in full.
var classes = []struct {
	ops   []string
	text  string
	class error
}{
	{nil, "container does not exist", errdefs.ErrNotFound},
	{nil, "/status`: No such file or directory", errdefs.ErrNotFound}, // crun: error opening file ...
	{[]string{"delete"}, "cannot open directory '", errdefs.ErrNotFound},
	{[]string{"kill"}, "container not running", errdefs.ErrNotFound}, // containerd's client suite demands it
	{[]string{"kill"}, "process already finished", errdefs.ErrNotFound},
	{[]string{"kill"}, "no such process", errdefs.ErrNotFound},
	{[]string{"kill"}, "No such process", errdefs.ErrNotFound},
	{[]string{"kill"}, "` is not running", errdefs.ErrNotFound},

	{[]string{"create"}, "container with given ID already exists", errdefs.ErrAlreadyExists},
	{[]string{"create"}, "` already exists", errdefs.ErrAlreadyExists}, // crun: container `ID` already exists

	{nil, "container not running", errdefs.ErrFailedPrecondition},
	{nil, "container not paused", errdefs.ErrFailedPrecondition},
	{nil, "cannot exec in a ", errdefs.ErrFailedPrecondition}, // stopped container, paused container (use --ignore-paused ...)
	{nil, "cannot start a", errdefs.ErrFailedPrecondition},    // container that has stopped, an already running container
	{nil, "that is not stopped", errdefs.ErrFailedPrecondition},
	{nil, "` is not running", errdefs.ErrFailedPrecondition}, // crun, like the rest
	{nil, "` is paused", errdefs.ErrFailedPrecondition},
	{nil, "` is not in `created` ", errdefs.ErrFailedPrecondition},
	{[]string{"start"}, "/exec.fifo`: No such file or directory", errdefs.ErrFailedPrecondition}, // already running
}

// classify gives the class of a runtime's error text, nil where it has none.
func classify(op, text string) error {
	for _, c := range classes {
		if (len(c.ops) == 0 || slices.Contains(c.ops, op)) && strings.Contains(text, c.text) {
			return c.class
		}
	}
	return nil
}

// explain turns the end of a runtime call into the error the caller passes on: the
// runtime's own last words where it logged any, with its class.
func (r *Runc) explain(ctx context.Context, intent, op string, err error) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf("container %s: OCI runtime %s failed", r.ID, op)
	// go-runc does not wrap what it passes on, so the error cannot be asked.
	_, missing := exec.LookPath(r.Binary)
	switch {
	case missing != nil:
		return fmt.Errorf("%s: install the runtime or set its BinaryName option: %w", what, missing)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: the runtime did not end in time and was killed: %w", what, context.DeadlineExceeded)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: the caller gave up and the runtime was killed: %w", what, ctx.Err())
	}
	if intent != "" {
		if logged := r.LoggedError(intent, op); logged != nil {
			return logged
		}
	}
	if class := classify(op, err.Error()); class != nil {
		return fmt.Errorf("%s: %s: %w", what, shorten(err.Error()), class)
	}
	if full(r.Bundle) { // it could not even write its log
		return fmt.Errorf("%s: %w: the file system of bundle %s is full", what, err, r.Bundle)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// full reports whether a file system has no room for a small file.
func full(path string) bool {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return false
	}
	return st.Bavail == 0 || st.Files > 0 && st.Ffree == 0
}

// LoggedError is what the runtime has logged of a failed call, with its class; nil where
// it has logged no error. It is the answer of a call whose worker has died, too. Of a dump
// or restore CheckpointError and RestoreError say more.
func (r *Runc) LoggedError(intent, op string) error {
	text, logged := r.lastWords(intent)
	if !logged {
		return nil
	}
	err := fmt.Errorf("container %s: OCI runtime %s failed: %s", r.ID, op, text)
	if class := classify(op, text); class != nil {
		return fmt.Errorf("%w: %w", err, class)
	}
	return err
}
