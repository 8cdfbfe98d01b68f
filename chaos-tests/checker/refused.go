package checker

import (
	"fmt"
	"slices"
)

// Refused checks that a refusal has a reason in what was asked before, and that what cannot be done any more is refused:
// an exec whose container's init is told to have ended is never started.
func Refused(h History) []error { return each(h, refused) }

func refused(l *life) []error {
	var errs []error
	for _, c := range l.calls {
		if why := l.unfounded(c); why != "" {
			errs = append(errs, fmt.Errorf("%s, though %s", c, why))
		}
	}
	return errs
}

// unfounded says what speaks against an answer; "" if nothing does.
func (l *life) unfounded(c Call) string {
	switch {
	case c.Code == OK && c.Op == OpStart && c.Exec != "":
		if tick, by, told := l.told(""); told && tick < c.Began {
			return by
		}
	case c.Code == AlreadyExists && c.Op == OpExec:
		if !l.may(c.Exec, 0, c.Ended, OpExec) {
			return "nobody has added it before"
		}
	case c.Code == AlreadyExists && c.Op == OpCreate:
		if !slices.ContainsFunc(l.calls, func(o Call) bool { return o.Op == OpCreate && o.took() && o.Began < c.Ended }) {
			return "nobody has created it before"
		}
	case c.Code == FailedPrecondition || c.Code == NotFound && c.Op == OpKill:
		if why, runs := l.running(c); runs && possibleWhileRunning(c) {
			return why
		}
	}
	return ""
}

// possibleWhileRunning lists what a running container does not refuse.
func possibleWhileRunning(c Call) bool {
	switch c.Op {
	case OpPause, OpUpdate, OpExec:
		return true
	case OpKill:
		return c.Exec == ""
	}
	return false
}

// running says whether the init was certainly running, and not paused, for all of a call: it was started before, it lived
// afterwards, and nobody had paused it without resuming it again.
func (l *life) running(c Call) (why string, ok bool) {
	starts := l.answered("", OpStart)
	lived, lives := l.livedAfter(c.Ended)
	if len(starts) == 0 || starts[0].Ended >= c.Began || !lives || l.gone("", c.effect()) {
		return "", false
	}
	for _, p := range l.calls {
		if p.Op != OpPause && p.Op != OpResume && p.Op != OpCheckpoint || !p.took() || p.Began >= c.Ended {
			continue
		}
		if p.effect() >= c.Began || p.Op == OpPause && !l.resumed(p, c) {
			return "", false
		}
	}
	return starts[0].String() + " and " + lived, true
}

// livedAfter says how it is known that the init lived after a tick: it has not ended to this day, or something that began
// later was done with it by the runtime. State is no witness: it knows of an end only when that is journaled, and says
// that an init runs while an exec lives on.
func (l *life) livedAfter(tick uint64) (why string, ok bool) {
	run, known := l.runs[""]
	if _, _, told := l.told(""); !told && known && !run.Ended {
		return "it has not ended", true
	}
	for _, c := range l.calls {
		if c.Began > tick && c.Code == OK && needsInit(c) {
			return "it lived: " + c.String(), true
		}
	}
	for _, look := range l.looks {
		if look.Began > tick && (look.Runtime == Running || look.Runtime == Paused) {
			return fmt.Sprintf("the runtime says at tick %d that it is %s", look.Began, look.Runtime), true
		}
	}
	return "", false
}

// needsInit says whether the runtime can do it only with an init that lives.
func needsInit(c Call) bool {
	switch c.Op {
	case OpPause, OpResume, OpUpdate:
		return true
	case OpKill:
		return c.Exec == ""
	case OpStart:
		return c.Exec != ""
	}
	return false
}

// resumed says whether a pause was certainly over before a call.
func (l *life) resumed(pause, c Call) bool {
	return slices.ContainsFunc(l.calls, func(r Call) bool {
		return r.Op == OpResume && r.Code == OK && r.Began > pause.effect() && r.Ended < c.Began
	})
}
