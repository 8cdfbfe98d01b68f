package lifecycle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func at(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }

// history builds containers by applying stamped records.
type history struct {
	t       testing.TB
	c       *Container
	records []Record
}

func newHistory(t testing.TB) *history { return &history{t: t, c: &Container{}} }

func (h *history) try(r Record) error {
	r = h.c.Stamp(r)
	next, err := h.c.Apply(r)
	if err == nil {
		h.c, h.records = next, append(h.records, r)
	}
	return err
}

func (h *history) add(r Record) uint64 {
	h.t.Helper()
	if err := h.try(r); err != nil {
		h.t.Fatal(err)
	}
	return h.c.Last
}

func (h *history) intent(op Op, exec string) uint64 {
	h.t.Helper()
	return h.add(Record{Op: op, Exec: exec, Phase: Intent})
}

// done adds an intent and its outcome.
func (h *history) done(op Op, exec string) {
	h.t.Helper()
	h.finish(h.intent(op, exec), op, exec)
}

func (h *history) finish(intent uint64, op Op, exec string) {
	h.t.Helper()
	r := Record{Phase: Done, Intent: intent, At: at(int(h.c.Last))}
	if op == OpCreate || op == OpStart && exec != "" {
		r.Process = &Process{Pid: 100 + len(exec), Start: h.c.Last}
	}
	h.add(r)
}

func (h *history) exit(exec string) {
	h.t.Helper()
	p := h.c.Process(exec)
	h.add(Record{Op: OpExit, Exec: exec, Phase: Observed, Process: &p.Process, Exit: &Exit{Status: 1, At: p.Clamp(t0), Source: Reaped}})
}

// reach brings init and, unless execState is None, exec "a" into states.
func reach(t testing.TB, init, execState State) *history {
	h := newHistory(t)
	if init == None {
		return h
	}
	h.done(OpCreate, "")
	if execState != None || init == Running || init == Paused || init == Stopped {
		h.done(OpStart, "")
	}
	if execState != None {
		h.add(Record{Op: OpExec, Exec: "a", Phase: Done})
	}
	if execState == Running || execState == Stopped {
		h.done(OpStart, "a")
	}
	if execState == Stopped {
		h.exit("a")
	}
	switch init {
	case Paused:
		h.done(OpPause, "")
	case Stopped, Deleted:
		h.exit("")
		if init == Deleted {
			h.done(OpDelete, "")
		}
	case None, Created, Running:
	}
	return h
}

func TestCheckEveryStateOfInit(t *testing.T) {
	for _, state := range States() {
		for _, op := range allOps() {
			c := reach(t, state, None).c
			if c.Init.State != state {
				t.Fatalf("reached %q instead of %q", c.Init.State, state)
			}
			if op == OpExec || op == OpOOM && state == Stopped {
				continue // it is asked for with an exec id; TestOOM has the other
			}
			_, want := Next(Init, state, op)
			if have := c.Check(op, ""); fmt.Sprint(have) != fmt.Sprint(want) {
				t.Errorf("%s of %q init: %v, want %v", op, state, have, want)
			}
		}
	}
}

func TestCheckEveryStateOfInitAndExec(t *testing.T) {
	for _, init := range []State{Created, Running, Paused, Stopped, Deleted} {
		for _, state := range []State{None, Created, Running, Stopped} {
			if init == Deleted && state == Running || init == Created && state != None {
				continue // cannot be
			}
			for _, op := range allOps() {
				err := reach(t, init, state).c.Check(op, "a")
				if have, want := verdict(err), execVerdict(init, state, op); have != want {
					t.Errorf("%s of %q exec, init %q: %v (%s), want %q", op, state, init, err, have, want)
				}
			}
		}
	}
}

func verdict(err error) Reason {
	var illegal *IllegalError
	if errors.As(err, &illegal) {
		return illegal.Reason
	}
	if err != nil {
		return Reason(err.Error())
	}
	return ""
}

// execVerdict says what has to happen to an operation on an exec.
func execVerdict(init, state State, op Op) Reason {
	switch _, err := Next(Exec, state, op); {
	case init == Deleted:
		return NotFound // its execs are gone with it
	case err != nil:
		return verdict(err)
	case op == OpExec && init != Running && init != Created:
		return Precondition
	case op == OpStart && init != Running:
		return Precondition
	}
	return ""
}

func TestBusyComesBeforeState(t *testing.T) {
	h := reach(t, Running, None)
	pause := h.intent(OpPause, "")
	var busy *BusyError
	if err := h.c.Check(OpResume, ""); !errors.As(err, &busy) || busy.Open.Seq != pause {
		t.Fatalf("resume while pausing: %v; want to wait for the pause", err)
	}
	if !strings.Contains(busy.Error(), "pause is under way") {
		t.Error(busy)
	}
	h.finish(pause, OpPause, "")
	if err := h.c.Check(OpResume, ""); err != nil {
		t.Errorf("resume after the pause: %v", err)
	}
}

func TestNothingExistsBeforeCreateIsDone(t *testing.T) {
	h := newHistory(t)
	i := h.intent(OpCreate, "")
	for _, op := range []Op{OpStart, OpKill, OpDelete} {
		if v := verdict(h.c.Check(op, "")); v != NotFound {
			t.Errorf("%s while creating: %q", op, v)
		}
	}
	var busy *BusyError
	if err := h.c.Check(OpCreate, ""); !errors.As(err, &busy) {
		t.Errorf("create while creating: %v", err)
	}
	h.add(Record{Phase: Failed, Intent: i})
	if h.c.Init.State != None {
		t.Errorf("a failed create leaves %q", h.c.Init.State)
	}
	h.done(OpCreate, "")
}

func TestSeventyExecsAtOnce(t *testing.T) {
	h := reach(t, Running, None)
	open := map[string]uint64{}
	for i := range 70 {
		id := fmt.Sprint("e", i)
		h.add(Record{Op: OpExec, Exec: id, Phase: Done})
		open[id] = h.intent(OpStart, id)
	}
	if h.c.Live() != 70 {
		t.Errorf("live %d", h.c.Live())
	}
	for id, i := range open {
		h.finish(i, OpStart, id)
	}
	if h.c.Live() != 70 {
		t.Errorf("live %d", h.c.Live())
	}
}

func TestInitExitIsToldLast(t *testing.T) {
	h := reach(t, Running, Running)
	h.add(Record{Op: OpExec, Exec: "b", Phase: Done})
	start := h.intent(OpStart, "b")
	h.exit("")
	told := func(want bool) {
		t.Helper()
		if h.c.InitExitTold() != want {
			t.Fatalf("told %t with %d live", !want, h.c.Live())
		}
	}
	told(false)
	h.exit("a")
	told(false)
	if v := verdict(h.c.Check(OpDelete, "")); !strings.Contains(string(v), "start of exec \"b\" is under way") {
		t.Errorf("delete with an exec starting: %q", v)
	}
	h.add(Record{Phase: Failed, Intent: start})
	told(true)
	h.done(OpDelete, "")
}

// TestDeleteWaitsForEveryExec: not even one may be left running.
func TestDeleteWaitsForEveryExec(t *testing.T) {
	h := reach(t, Running, Running)
	h.exit("")
	if err := h.c.Check(OpDelete, ""); err == nil || !strings.Contains(err.Error(), "1 execs are still running") {
		t.Errorf("delete beside a running exec: %v", err)
	}
	h.exit("a")
	h.done(OpDelete, "")
}

// TestStartIsNotAfterTheExit: a process whose exit has overtaken the outcome of its start was started before that.
func TestStartIsNotAfterTheExit(t *testing.T) {
	h := reach(t, Created, None)
	start := h.intent(OpStart, "")
	p := h.c.Init
	h.add(Record{Op: OpExit, Phase: Observed, Process: &p.Process, Exit: &Exit{At: at(50), Source: Reaped}})
	h.add(Record{Phase: Done, Intent: start, At: at(100)})
	if p = h.c.Init; p.Started.After(p.Exit.At) {
		t.Errorf("started %s, ended %s", p.Started, p.Exit.At)
	}
}

func TestExitOvertakesOutcome(t *testing.T) {
	for op, from := range map[Op]State{OpStart: Created, OpPause: Running, OpResume: Paused} {
		h := reach(t, from, None)
		i := h.intent(op, "")
		h.exit("")
		if op == OpStart && h.c.InitExitTold() {
			t.Error("init's exit is told before its start")
		}
		h.add(Record{Phase: Done, Intent: i})
		if h.c.Init.State != Stopped || !h.c.InitExitTold() {
			t.Errorf("%s overtaken by the exit: %+v", op, h.c.Init)
		}
	}
}

// TestExecIsAddedUntilInitsExitIsTold: containerd's client suite adds one to a container whose init is dead while
// another exec is being started; it cannot be started any more.
func TestExecIsAddedUntilInitsExitIsTold(t *testing.T) {
	h := reach(t, Running, Created)
	start := h.intent(OpStart, "a")
	h.exit("")
	if err := h.c.Check(OpExec, "b"); err != nil {
		t.Errorf("while another is being started: %v", err)
	}
	h.add(Record{Op: OpExec, Exec: "b", Phase: Done})
	if err := h.c.Check(OpStart, "b"); err == nil {
		t.Error("an exec of a dead init can be started")
	}
	h.add(Record{Phase: Failed, Intent: start, Error: &Error{}})
	if err := h.c.Check(OpExec, "c"); err == nil {
		t.Error("an exec can be added after init's exit is told")
	}
}
