// Package real fills a history for package checker from a real containerd, shim and runtime.
package real

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

// Code is the class of an error of containerd's client. What is not certainly a refusal may have had its effect.
func Code(err error) checker.Code {
	switch {
	case err == nil:
		return checker.OK
	case errdefs.IsNotFound(err):
		return checker.NotFound
	case errdefs.IsAlreadyExists(err):
		return checker.AlreadyExists
	case errdefs.IsFailedPrecondition(err):
		return checker.FailedPrecondition
	}
	return checker.Unanswered
}

// Events turns a container's recorded events, in order of arrival, into those of its lives: a life begins with what comes
// after the one before was told to be deleted and is no repetition. The place in the record is the tick plus from.
func Events(recorded []harness.Event, from uint64) []checker.Event {
	var all []checker.Event
	life, deleted := 1, false
	said := map[string]bool{} // what this life has told
	for i, e := range recorded {
		if deleted && !said[e.Payload()] {
			life, deleted, said = life+1, false, map[string]bool{}
		}
		said[e.Payload()] = true
		deleted = deleted || e.Name == "delete" && e.Exec == ""
		all = append(all, checker.Event{
			Target: checker.Target{Container: e.Container, Life: life, Exec: e.Exec},
			At:     from + uint64(i), Name: e.Name, Time: e.Time,
			Pid: int(e.Pid), Status: e.Status, ExitedAt: e.ExitedAt, Raw: e.Payload(),
		})
	}
	return all
}

// RuntimeState asks runc itself for the status of a container; "" where it does not know it.
func RuntimeState(ctx context.Context, namespace, id string) (status string, pid int, err error) {
	root := filepath.Join("/run/containerd/runc", namespace)
	out, err := exec.CommandContext(ctx, "runc", "--root", root, "state", id).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && strings.Contains(string(failed.Stderr), "does not exist") {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, fmt.Errorf("runc state of %s: %w", id, err)
	}
	var state struct {
		Status string `json:"status"`
		Pid    int    `json:"pid"`
	}
	if err := json.Unmarshal(out, &state); err != nil {
		return "", 0, fmt.Errorf("runc state of %s: %w", id, err)
	}
	return state.Status, state.Pid, nil
}
