// Package deletion holds the tests in which a worker is killed around an init's
// Delete, after which containerd removes the bundle: neither the exit nor the
// delete may get lost.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
	"perdure/internal/crash"
)

const (
	limit     = 30 * time.Second
	testLimit = 2 * time.Minute
)

// Moments of a kill besides the crash points of a delete.
const (
	before = "before"
	after  = "after"
)

// moments lists all at which a worker is killed.
func moments() []string {
	all := []string{before, after}
	for _, point := range crash.All() {
		if strings.HasPrefix(point, "delete.") {
			all = append(all, point)
		}
	}
	return all
}

func TestSingle(t *testing.T) { run(t, scene{}) }

func TestInAPod(t *testing.T) { run(t, scene{pod: "pod"}) }

// While containerd's event service cannot be reached, Delete is answered all
// the same, and the events wait in the spool.
func TestSingleSpooled(t *testing.T) { run(t, scene{hidden: true}) }

func TestInAPodSpooled(t *testing.T) { run(t, scene{pod: "pod", hidden: true}) }

// scene is where a container is deleted.
type scene struct {
	h       *harness.Harness
	crashes *harness.Crashes
	pod     string // "": a shim of its own
	hidden  bool   // the event service is out of reach from the init's end on
}

func run(t *testing.T, s scene) {
	s.h, s.crashes = harness.NewWithCrashes(t)
	if s.pod != "" {
		_, err := s.h.Run(s.h.Within(t, testLimit), s.pod, harness.Config{Args: harness.Sleep()})
		harness.Check(t, err)
	}
	for _, moment := range moments() {
		// What is published is not spooled.
		if not := map[bool]crash.Position{true: crash.AfterPublish, false: crash.AfterSpool}[s.hidden]; moment == "delete."+string(not) {
			continue
		}
		t.Run(moment, func(t *testing.T) { s.remove(s.h.Within(t, testLimit), t, moment) })
	}
}

// program ends with 9 when it is asked to.
const program = "trap 'exit 9' TERM; echo ready; while :; do sleep 1000 & wait $!; done"

// remove runs a container to its end and deletes it, and kills the worker at
// the given moment.
func (s *scene) remove(ctx context.Context, t *testing.T, moment string) {
	id := "c-" + strings.ReplaceAll(moment, ".", "-")
	c, err := s.h.Run(ctx, id, harness.Config{Args: harness.Shell(program), Pod: s.pod})
	harness.Check(t, err)
	harness.Check(t, c.Stdout.Await(limit, "ready"))
	_, err = s.h.Events.Expect(limit, id, "create", "start")
	harness.Check(t, err)
	if s.hidden {
		harness.Check(t, s.h.Hide())
		_, err := c.KillWorker(ctx) // the next has no connection yet
		harness.Check(t, err)
	}
	harness.Check(t, c.Kill(ctx, syscall.SIGTERM))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.CheckJournal(ctx))

	s.deleteKilling(ctx, t, c, moment, exit)
	if s.hidden {
		s.checkSpool(t, id)
		harness.Check(t, s.h.Show())
	}
	s.checkEvents(ctx, t, c, exit)
	if moment != before && moment != after {
		harness.Check(t, s.crashes.Fired(moment))
	}
	harness.Check(t, wait.Until(ctx, limit, "the spool to be removed", func() error { return absent(s.h.Spool()) }))
}

// deleteKilling is the Delete, with the worker killed.
func (s *scene) deleteKilling(ctx context.Context, t *testing.T, c *harness.Container, moment string, exit harness.Exit) {
	t.Helper()
	switch moment {
	case before:
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
	case after:
	default:
		harness.Check(t, s.crashes.Arm(moment))
	}
	deleted, err := c.Task.Delete(ctx)
	harness.Check(t, err)
	if exit.Code != 9 || deleted.ExitCode() != 9 || !deleted.ExitTime().Equal(exit.At) {
		t.Errorf("Wait says %d at %v, Delete %d at %v, want 9", exit.Code, exit.At, deleted.ExitCode(), deleted.ExitTime())
	}
	if moment == after {
		_, err := c.KillWorker(ctx)
		if err != nil && s.pod == "" && !s.hidden {
			err = nil // the shim has left with its container
		}
		harness.Check(t, err)
	}
	c.Task = nil
	if err := absent(s.h.Bundle(s.h.Namespace, c.ID)); err != nil {
		t.Error(err)
	}
}

// checkSpool checks that the container's journal waits in the spool.
func (s *scene) checkSpool(t *testing.T, id string) {
	t.Helper()
	entries, err := os.ReadDir(s.h.Spool())
	harness.Check(t, err)
	if len(entries) != 1 || !strings.HasPrefix(entries[0].Name(), id+"@") {
		t.Errorf("the spool holds %v, want the journal of %s", entries, id)
	}
	if all, err := s.h.Events.Of(id); err != nil || len(all) != 2 {
		t.Errorf("the events are %v (%v) while nobody can be reached", all, err)
	}
}

// checkEvents waits for all events, each once and in order.
func (s *scene) checkEvents(ctx context.Context, t *testing.T, c *harness.Container, exit harness.Exit) {
	t.Helper()
	events, err := s.h.Events.Expect(limit, c.ID, "create", "start", "exit", "delete")
	harness.Check(t, err)
	for _, e := range events[2:] {
		if e.Status != exit.Code || !e.ExitedAt.Equal(exit.At) || e.Pid != events[0].Pid {
			t.Errorf("event %+v, want %d at %v of pid %d", e, exit.Code, exit.At, events[0].Pid)
		}
	}
	harness.Check(t, c.Remove(ctx))
}

func absent(path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%s is there (%v)", path, err)
}
