package checker

import (
	"fmt"
	"math"
	"slices"
)

// Acknowledged checks that what was answered stays true: each answer is compared with the calls that began after it, up to
// the first that may have undone it.
func Acknowledged(h History) []error { return each(h, acknowledged) }

func acknowledged(l *life) []error {
	var errs []error
	for _, c := range l.calls {
		if broken, ok := l.breaks(c); ok {
			errs = append(errs, fmt.Errorf("%s, and then %s", broken, c))
		}
	}
	errs = append(errs, killsEnd(l)...)
	errs = append(errs, killsArrive(l)...)
	return errs
}

// breaks finds an earlier answer that contradicts c.
func (l *life) breaks(c Call) (earlier string, ok bool) {
	for _, a := range l.calls {
		if a.Began >= c.Began {
			break
		}
		if a.Code == OK && a.Ended < c.Began && l.contradicts(a, c) {
			return a.String(), true
		}
	}
	if tick, by, told := l.told(c.Exec); told && tick < c.Began && l.revives(c) {
		return by, true
	}
	return "", false
}

// contradicts says whether c, which began after a had been answered ok, cannot be true.
func (l *life) contradicts(a, c Call) bool {
	same := a.Exec == c.Exec
	state := same && c.Op == OpState && c.Code == OK
	switch a.Op {
	case OpCreate:
		return a.Exec == "" && c.missing() && (c.Exec == "" || c.Op == OpExec) && !l.gone("", c.effect())
	case OpExec:
		return same && (c.missing() || c.Op == OpExec && c.Code == OK && !c.repeats(a)) && !l.gone(c.Exec, c.effect())
	case OpStart:
		return state && c.State == Created
	case OpPause:
		return state && c.State != Paused && c.State != Stopped && !l.may("", a.Began, c.Ended, OpResume)
	case OpResume:
		return state && (c.State == Paused || c.State == Pausing) && !l.may("", a.Began, c.Ended, OpPause)
	case OpDelete:
		return (same || a.Exec == "") && c.Code == OK && c.needs()
	}
	return false
}

// missing says that the answer denies that the process is there. Kill says so of one that has ended as well.
func (c Call) missing() bool { return c.Code == NotFound && c.Op != OpKill }

// needs says whether the operation, answered ok, needs a process that is there. Connect and Pids do not, and a Delete may
// be asked for again.
func (c Call) needs() bool {
	switch c.Op {
	case OpConnect, OpPids, OpDelete, OpWait:
		return false
	}
	return true
}

// revives says that an answer is one of a living process, or a command that only a living one can obey. An init whose end
// is told has no exec that could be started.
func (l *life) revives(c Call) bool {
	if c.Code != OK {
		return false
	}
	switch c.Op {
	case OpState:
		return c.State != Stopped
	case OpStart, OpPause, OpResume, OpUpdate, OpKill:
		return true
	}
	return false
}

// killsEnd: an answered kill -9 means that the process ends.
func killsEnd(l *life) []error {
	if !l.over {
		return nil
	}
	var errs []error
	for _, c := range l.calls {
		if c.Op != OpKill || c.Signal != 9 || c.Code != OK {
			continue
		}
		if _, _, told := l.told(c.Exec); !told && !l.runs[c.Exec].Ended && !l.gone(c.Exec, c.Began+1) {
			errs = append(errs, fmt.Errorf("nothing tells of the end after %s", c))
		}
	}
	return errs
}

// killsArrive: where signals are counted, one of an answered kill has been sent, or the process has ended, before a client
// sends it the same one again. Whoever kills it at the end of the history does not make good what was lost before.
func killsArrive(l *life) []error {
	var errs []error
	for _, c := range l.calls {
		run := l.runs[c.Exec]
		if c.Op != OpKill || c.Code != OK || !run.Heard {
			continue
		}
		from, until := l.window(c)
		arrived := slices.ContainsFunc(run.Signals, func(s Signal) bool {
			return s.Number == c.Signal && s.At >= from && s.At < until
		})
		if ended := run.Ended && run.EndedAt < until; !arrived && !ended && (l.over || until != math.MaxUint64) {
			errs = append(errs, fmt.Errorf("signal %d was not sent before tick %d, and the process has not ended: %s", c.Signal, until, c))
		}
	}
	return errs
}

// window is when the signal of an answered kill must have been sent: from the first time that its request was made until
// another kill with the same signal can have had its effect.
func (l *life) window(c Call) (from, until uint64) {
	from, until = c.Began, math.MaxUint64
	for _, o := range l.calls {
		switch {
		case o.Op != OpKill || o.Exec != c.Exec || o.Signal != c.Signal:
		case o.repeats(c):
			from = min(from, o.Began)
		case o.Began > c.Ended && o.took():
			until = min(until, o.Began)
		}
	}
	return from, until
}
