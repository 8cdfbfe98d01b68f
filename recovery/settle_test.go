package recovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"perdure/store/lifecycle"
)

// world is what a dead worker has left. While orphans is set a call of the runtime is still at work: the other
// fields hold only once that has been waited for.
type world struct {
	orphans   bool
	stuck     error // an orphan that does not end
	status    string
	mute      error // what the runtime says instead of a status
	pid       int
	stray     int
	ran       bool
	failure   string
	unstarted bool
	dumped    bool
	restores  bool

	asked []string // the strays that were looked for
}

func (w *world) WaitOrphans(context.Context, string) error {
	w.orphans = w.stuck != nil
	return w.stuck
}

func (w *world) Status(context.Context) (string, error) {
	if w.mute != nil {
		return "", w.mute
	}
	if w.orphans || w.status == "" {
		return "", fmt.Errorf("container: %w", errdefs.ErrNotFound)
	}
	return w.status, nil
}

func (w *world) Stray(exec string) (int, bool) {
	w.asked = append(w.asked, exec)
	return w.stray, w.stray != 0 && !w.orphans
}

func (w *world) Ran(string) bool { return w.ran && !w.orphans }

func (w *world) PidFile(string) (int, bool) {
	if w.orphans {
		return 0, false
	}
	return w.pid, w.pid != 0
}

func (w *world) IntentError(string) (string, bool) {
	if w.orphans {
		return "", false
	}
	return w.failure, w.failure != ""
}

func (w *world) Dumped(lifecycle.Record) bool { return w.dumped && !w.orphans }
func (w *world) Restores() bool               { return w.restores }
func (w *world) Unstarted() bool              { return w.unstarted }

func intent(op lifecycle.Op, exec string, phase lifecycle.Phase) lifecycle.Record {
	return lifecycle.Record{Seq: 7, Op: op, Exec: exec, Phase: phase, Request: 103}
}

// settle wants a judgement.
func settle(t *testing.T, r lifecycle.Record, w *world) lifecycle.Record {
	t.Helper()
	outcome, err := Settle(t.Context(), r, w)
	if err != nil {
		t.Fatalf("%s of %q: %v", r.Op, r.Exec, err)
	}
	return outcome
}

// TestOrphansAreWaitedForFirst: what a call of the runtime that outlived its worker is still to do counts as done.
func TestOrphansAreWaitedForFirst(t *testing.T) {
	for name, c := range map[string]struct {
		intent lifecycle.Record
		left   world
		want   lifecycle.Phase
	}{
		"create":     {intent(lifecycle.OpCreate, "", lifecycle.Launched), world{status: "created", pid: 42, ran: true}, lifecycle.Done},
		"no create":  {intent(lifecycle.OpCreate, "", lifecycle.Launched), world{failure: "no such file", ran: true}, lifecycle.Failed},
		"start":      {intent(lifecycle.OpStart, "", lifecycle.Launched), world{status: "running", ran: true}, lifecycle.Done},
		"exec":       {intent(lifecycle.OpStart, "e", lifecycle.Launched), world{pid: 42, ran: true}, lifecycle.Done},
		"stray":      {intent(lifecycle.OpStart, "e", lifecycle.Launched), world{stray: 42, ran: true}, lifecycle.Done},
		"pause":      {intent(lifecycle.OpPause, "", lifecycle.Intent), world{status: "paused", ran: true}, lifecycle.Done},
		"checkpoint": {intent(lifecycle.OpCheckpoint, "", lifecycle.Intent), world{dumped: true, ran: true}, lifecycle.Done},
	} {
		c.left.orphans = true
		if outcome := settle(t, c.intent, &c.left); outcome.Phase != c.want {
			t.Errorf("%s: %s, want %s", name, outcome.Phase, c.want)
		}
	}
}

// TestNothingIsJudgedInTheDark: as long as something is still at work, or the runtime does not answer, there is no
// outcome to be journaled.
func TestNothingIsJudgedInTheDark(t *testing.T) {
	broken := errors.New("exec format error")
	for op := range asksRuntime {
		if _, err := Settle(t.Context(), intent(op, "", lifecycle.Launched), &world{mute: broken}); !errors.Is(err, broken) {
			t.Errorf("%s with a runtime that does not run: %v", op, err)
		}
	}
	for _, op := range lifecycle.Commands() {
		if _, err := Settle(t.Context(), intent(op, "", lifecycle.Launched), &world{stuck: broken}); !errors.Is(err, broken) {
			t.Errorf("%s with an orphan that does not end: %v", op, err)
		}
	}
	if outcome := settle(t, intent(lifecycle.OpCreate, "", lifecycle.Launched), &world{}); outcome.Phase != lifecycle.Undone {
		t.Errorf("a create that the runtime knows nothing of is %s", outcome.Phase)
	}
}

// TestStrayIsLookedFor: a process that was started by a runtime that died before it wrote the pid is found again,
// and only where one can be.
func TestStrayIsLookedFor(t *testing.T) {
	for name, c := range map[string]struct {
		intent lifecycle.Record
		left   world
		asked  string
		pid    int
	}{
		"exec":          {intent(lifecycle.OpStart, "e", lifecycle.Launched), world{ran: true, stray: 43}, "e", 43},
		"restored init": {intent(lifecycle.OpStart, "", lifecycle.Launched), world{ran: true, status: "running", stray: 43, restores: true}, "", 43},
		"known pid":     {intent(lifecycle.OpStart, "e", lifecycle.Launched), world{ran: true, pid: 42, stray: 43}, "-", 42},
		"not launched":  {intent(lifecycle.OpStart, "e", lifecycle.Intent), world{stray: 43}, "-", 0},
		"init":          {intent(lifecycle.OpStart, "", lifecycle.Launched), world{ran: true, status: "running", stray: 43}, "-", 0},
	} {
		outcome := settle(t, c.intent, &c.left)
		asked := "-"
		if len(c.left.asked) > 0 {
			asked = strings.Join(c.left.asked, " ")
		}
		var pid int
		if outcome.Process != nil {
			pid = outcome.Process.Pid
		}
		if asked != c.asked || pid != c.pid {
			t.Errorf("%s: asked for %q, found %d; want %q, %d", name, asked, pid, c.asked, c.pid)
		}
	}
}

// TestLostIsUnknown: of a process that may have run nobody invents a status.
func TestLostIsUnknown(t *testing.T) {
	outcome := settle(t, intent(lifecycle.OpStart, "e", lifecycle.Launched), &world{ran: true})
	if outcome.Phase != lifecycle.Failed || outcome.Error == nil || outcome.Exit == nil {
		t.Fatalf("%+v: want a failed start with an exit", outcome)
	}
	if *outcome.Exit != (lifecycle.Exit{Status: 255, Source: lifecycle.Unknown}) {
		t.Errorf("the exit is %+v; want 255 of source unknown", *outcome.Exit)
	}
	failed := settle(t, intent(lifecycle.OpStart, "e", lifecycle.Launched), &world{ran: true, failure: "no such file"})
	if failed.Phase != lifecycle.Failed || failed.Exit != nil || failed.Error == nil || failed.Error.Message != "no such file" {
		t.Errorf("%+v: want the runtime's own words and no exit", failed)
	}
}

// TestAnOutcomeIsThatOfItsIntent: whatever the verdict, the replay of the request has to find it.
func TestAnOutcomeIsThatOfItsIntent(t *testing.T) {
	verdicts := map[lifecycle.Phase]bool{}
	for _, op := range lifecycle.Commands() {
		for _, exec := range []string{"", "e"} {
			for _, left := range []world{{}, {status: "paused", pid: 42, ran: true, dumped: true}, {ran: true}, {ran: true, failure: "x"}} {
				r := intent(op, exec, lifecycle.Launched)
				outcome := settle(t, r, &left)
				verdicts[outcome.Phase] = true
				if outcome.Op != op || outcome.Exec != exec || outcome.Intent != r.Seq || outcome.Request != r.Request {
					t.Errorf("%s of %q: the outcome is %+v", op, exec, outcome)
				}
			}
		}
	}
	if !verdicts[lifecycle.Done] || !verdicts[lifecycle.Failed] || !verdicts[lifecycle.Undone] {
		t.Errorf("only %v came about", verdicts)
	}
}
