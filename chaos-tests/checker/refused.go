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

// running says whether the init was certainly running, and not paused, for all of a call: it was started before, has not
// ended to this day, and nobody had paused it without resuming it again.
func (l *life) running(c Call) (why string, ok bool) {
	starts := l.answered("", OpStart)
	run, known := l.runs[""]
	if _, _, told := l.told(""); len(starts) == 0 || starts[0].Ended >= c.Began || told || !known || run.Ended || l.gone("", c.effect()) {
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
	return starts[0].String() + " and it has not ended", true
}

// resumed says whether a pause was certainly over before a call.
func (l *life) resumed(pause, c Call) bool {
	return slices.ContainsFunc(l.calls, func(r Call) bool {
		return r.Op == OpResume && r.Code == OK && r.Began > pause.effect() && r.Ended < c.Began
	})
}
