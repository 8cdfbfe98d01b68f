package lifecycle

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// TestWriterMistakes breaks one rule at a time.
func TestWriterMistakes(t *testing.T) {
	running := func(t *testing.T) *history { return reach(t, Running, Created) }
	init := &Process{Pid: 100, Start: 1}
	exit := &Exit{Status: 0, At: at(1000), Source: Reaped}
	for name, c := range map[string]struct {
		start func(*testing.T) *history
		r     Record
		rule  string
	}{
		"outcome of nothing":       {running, Record{Op: OpKill, Phase: Done}, "needs an intent"},
		"outcome of closed intent": {running, Record{Op: OpCreate, Phase: Done, Intent: 1}, "not open"},
		"undone without intent":    {running, Record{Op: OpKill, Phase: Undone}, "needs an intent"},
		"launched without intent":  {running, Record{Op: OpKill, Phase: Launched}, "not open"},
		"intent of intent":         {running, Record{Op: OpKill, Phase: Intent, Intent: 1}, "does not belong"},
		"intent of exit":           {running, Record{Op: OpExit, Phase: Intent}, "only commands"},
		"unknown operation":        {running, Record{Op: "thaw", Phase: Intent}, "only commands"},
		"unknown phase":            {running, Record{Op: OpKill, Phase: "begun"}, "no known phase"},
		"kill observed":            {running, Record{Op: OpKill, Phase: Observed}, "only exit and oom"},
		"failed oom":               {running, Record{Op: OpOOM, Phase: Failed}, "has no outcome"},
		"requested exit":           {running, Record{Op: OpExit, Phase: Observed, Request: 7, Process: init, Exit: exit}, "nobody asks"},
		"exit without status":      {running, Record{Op: OpExit, Phase: Observed, Process: init}, "has a status"},
		"exit of another process":  {running, Record{Op: OpExit, Phase: Observed, Process: &Process{Pid: 100, Start: 2}, Exit: exit}, "another process"},
		"exit of no process":       {running, Record{Op: OpExit, Phase: Observed, Exit: exit}, "another process"},
		"exit before start": {running, Record{Op: OpExit, Phase: Observed, Process: init,
			Exit: &Exit{At: t0, Source: Reaped}}, "earlier than the start"},
		"reaped exit of an exec not started": {running, Record{Op: OpExit, Exec: "a", Phase: Observed, Exit: exit}, "only be lost"},
		"lost while starting": {func(t *testing.T) *history { h := running(t); h.intent(OpStart, "a"); return h },
			Record{Op: OpExit, Exec: "a", Phase: Observed, Exit: &Exit{At: at(1), Source: Unknown}}, "only be lost"},
		"container without process": {func(t *testing.T) *history { h := newHistory(t); h.intent(OpCreate, ""); return h },
			Record{Phase: Done, Intent: 1, Process: &Process{}}, "has an init process"},
		"restored without process": {func(t *testing.T) *history {
			h := newHistory(t)
			h.add(Record{Phase: Done, Intent: h.intent(OpCreate, "")})
			h.intent(OpStart, "")
			return h
		}, Record{Phase: Done, Intent: 3}, "has a pid"},
		"exec without process": {func(t *testing.T) *history { h := running(t); h.intent(OpStart, "a"); return h },
			Record{Phase: Done, Intent: 6}, "has a pid"},
		"outcome of another request": {func(t *testing.T) *history {
			h := running(t)
			h.add(Record{Op: OpKill, Phase: Intent, Request: 9})
			return h
		}, Record{Phase: Failed, Intent: 6, Request: 10}, "another operation"},
		"launched twice": {func(t *testing.T) *history {
			h := running(t)
			h.add(Record{Phase: Launched, Intent: h.intent(OpStart, "a")})
			return h
		}, Record{Phase: Launched, Intent: 6}, "launched already"},
		"delete before the exit": {func(t *testing.T) *history { h := reach(t, Created, None); h.intent(OpDelete, ""); return h },
			Record{Phase: Done, Intent: 3}, "come before the delete"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.start(t)
			var broken *RecordError
			if err := h.try(c.r); !errors.As(err, &broken) || !strings.Contains(err.Error(), c.rule) {
				t.Errorf("%v; want %q", err, c.rule)
			}
		})
	}
}

func TestApplyChecksWhatStampWrote(t *testing.T) {
	h := reach(t, Running, None)
	good := h.c.Stamp(Record{Phase: Done, Intent: h.intent(OpPause, "")})
	good = h.c.Stamp(good)
	for name, change := range map[string]func(*Record){
		"sequence": func(r *Record) { r.Seq = h.c.Last },
		"from":     func(r *Record) { r.From = Created },
		"to":       func(r *Record) { r.To = Stopped },
		"moves":    func(r *Record) { r.To = r.From },
	} {
		bad := good
		change(&bad)
		var broken *RecordError
		if _, err := h.c.Apply(bad); !errors.As(err, &broken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := h.c.Apply(good); err != nil {
		t.Error(err)
	}
}

// TestObservationsOfWhatIsGone: an exit is taken once, and an oom not after it.
func TestObservationsOfWhatIsGone(t *testing.T) {
	h := reach(t, Running, None)
	h.add(Record{Op: OpOOM, Phase: Observed, OOM: &OOM{Told: 1}})
	h.exit("")
	if h.c.Init.OOM.Told != 1 || h.c.Init.Exit == nil {
		t.Errorf("%+v", h.c.Init)
	}
	p := h.c.Init.Process
	var illegal *IllegalError
	if err := h.try(Record{Op: OpExit, Phase: Observed, Process: &p, Exit: h.c.Init.Exit}); !errors.As(err, &illegal) {
		t.Errorf("a second exit: %v", err)
	}
	if err := h.c.Check(OpOOM, ""); !errors.As(err, &illegal) {
		t.Errorf("an oom after the exit: %v", err)
	}
}

// TestOOM: the sums grow; what kills an exec of an init that has ended is told before that exec's exit, and so
// before init's.
func TestOOM(t *testing.T) {
	h := reach(t, Running, Running)
	h.add(Record{Op: OpOOM, Phase: Observed, OOM: &OOM{Told: 1, Kills: 2}})
	h.add(Record{Op: OpOOM, Phase: Observed, OOM: &OOM{Told: 2, Kills: 2}}) // a notification without a kill
	var broken *RecordError
	for _, sums := range []*OOM{nil, {Told: 2, Kills: 3}, {Told: 3, Kills: 1}} {
		if err := h.try(Record{Op: OpOOM, Phase: Observed, OOM: sums}); !errors.As(err, &broken) {
			t.Errorf("%+v: %v", sums, err)
		}
	}
	h.exit("")
	if err := h.c.Check(OpOOM, ""); err != nil {
		t.Errorf("while an exec lives: %v", err)
	}
	h.add(Record{Op: OpOOM, Phase: Observed, OOM: &OOM{Told: 3, Kills: 3}})
	h.exit("a")
	var illegal *IllegalError
	if err := h.c.Check(OpOOM, ""); !errors.As(err, &illegal) {
		t.Errorf("after the exit of init may be told: %v", err)
	}
	if want := (OOM{Told: 3, Kills: 3}); h.c.Init.OOM != want {
		t.Errorf("%+v", h.c.Init.OOM)
	}
}

func TestLostExecEnds(t *testing.T) {
	h := reach(t, Running, Created)
	start := h.intent(OpStart, "a")
	h.add(Record{Phase: Launched, Intent: start})
	if h.c.Open[start].Phase != Launched {
		t.Error("the mark is not in the open intent")
	}
	h.add(Record{Phase: Failed, Intent: start})
	h.add(Record{Op: OpExit, Exec: "a", Phase: Observed, Exit: &Exit{Status: 255, At: at(9), Source: Unknown}})
	if p := h.c.Process("a"); p.State != Stopped || p.Exit.Status != 255 {
		t.Errorf("%+v", p)
	}
	h.done(OpDelete, "a")
}

func TestAnswersAreKeptUntilForgotten(t *testing.T) {
	h := reach(t, Running, None)
	ask := func(request uint64, phase Phase) {
		i := h.add(Record{Op: OpKill, Phase: Intent, Request: request})
		h.add(Record{Phase: phase, Intent: i, Answer: json.RawMessage(`{}`)})
	}
	ask(5, Done)
	ask(6, Failed)
	ask(7, Undone)
	h.add(Record{Op: OpPause, Phase: Failed, Request: 8, Error: &Error{Code: "NotFound", Message: "x"}})
	if n := len(h.c.Answers); n != 3 || h.c.Answers[8].Error.Error() != "NotFound: x" {
		t.Errorf("%d answers: %+v", n, h.c.Answers)
	}
	if _, ok := h.c.Answers[7]; ok {
		t.Error("an undone request is answered, not done again")
	}
	f := h.c.Forget(6)
	if len(f.Answers) != 2 || len(h.c.Answers) != 3 || f.Forget(3) != f {
		t.Errorf("after Forget(6): %v, and before: %v", f.Answers, h.c.Answers)
	}
}

// TestParams: what was asked for is kept, from the outcome or else from the intent.
func TestParams(t *testing.T) {
	h := newHistory(t)
	i := h.add(Record{Op: OpCreate, Phase: Intent, Params: json.RawMessage(`1`)})
	h.add(Record{Phase: Done, Intent: i, Process: &Process{Pid: 1}})
	h.add(Record{Op: OpExec, Exec: "a", Phase: Done, Params: json.RawMessage(`2`)})
	if string(h.c.Init.Params) != "1" || string(h.c.Execs["a"].Params) != "2" {
		t.Errorf("%s, %s", h.c.Init.Params, h.c.Execs["a"].Params)
	}
}
