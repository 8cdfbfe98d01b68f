package checker

import (
	"fmt"
	"slices"
)

// OneExit checks that a process ends once: its exit event has one form, byte for byte, however often it arrives; Wait,
// State, Delete and the events say the same status and the same time; and that is how it truly ended, or 255 where nobody
// could know.
func OneExit(h History) []error { return each(h, oneExit) }

func oneExit(l *life) []error {
	var errs []error
	for _, exec := range l.processes() {
		errs = append(errs, sameEvents(l, exec, "exit")...)
		errs = append(errs, sameEvents(l, exec, "delete")...)
		errs = append(errs, sameEnds(l, exec)...)
	}
	return errs
}

// sameEvents: every arrival of the event is equal to the first.
func sameEvents(l *life, exec, name string) []error {
	var errs []error
	var first *Event
	for i, e := range l.events {
		switch {
		case e.Exec != exec || e.Name != name:
		case first == nil:
			first = &l.events[i]
		case e.Raw != first.Raw:
			errs = append(errs, fmt.Errorf("arrived in two forms: %s, and %s", first, e))
		}
	}
	return errs
}

// said is an ending and who says it.
type said struct {
	ending
	by string
}

func endings(l *life, exec string) []said {
	var all []said
	for _, c := range l.calls {
		if end, ok := c.end(); ok && c.Exec == exec && !(exec != "" && c.Op == OpDelete && neverStarted(l, exec)) {
			all = append(all, said{end, c.String()})
		}
	}
	for _, e := range l.events {
		if end, ok := e.end(); ok && e.Exec == exec {
			all = append(all, said{end, e.String()})
		}
	}
	return all
}

// neverStarted says that an exec was added only, or that its start was refused: its Delete has no exit to tell.
func neverStarted(l *life, exec string) bool {
	return !slices.ContainsFunc(l.calls, func(c Call) bool { return c.Exec == exec && c.Op == OpStart && c.took() })
}

func sameEnds(l *life, exec string) []error {
	all := endings(l, exec)
	if len(all) == 0 {
		return nil
	}
	var errs []error
	for _, s := range all[1:] {
		if !s.same(all[0].ending) {
			errs = append(errs, fmt.Errorf("%s has two ends: %s, and %s", l.process(exec), all[0].by, s.by))
		}
	}
	run, known := l.runs[exec]
	if !known || len(run.Statuses) == 0 {
		return errs
	}
	for _, s := range all {
		if !slices.Contains(run.Statuses, s.status) && !(run.Unknowable && s.status == UnknownStatus) {
			errs = append(errs, fmt.Errorf("%s truly ended with %v: %s", l.process(exec), run.Statuses, s.by))
		}
	}
	return errs
}

// Times checks that every end has a time, and none before the start, by the clock of the events.
func Times(h History) []error { return each(h, times) }

func times(l *life) []error {
	var errs []error
	for _, exec := range l.processes() {
		for _, s := range endings(l, exec) {
			if s.at.IsZero() || s.at.Unix() == 0 {
				errs = append(errs, fmt.Errorf("%s has ended at no time: %s", l.process(exec), s.by))
				continue
			}
			for _, e := range l.events {
				began := e.Name == "start" || e.Name == "exec-started" || e.Name == "create"
				if began && e.Exec == exec && s.at.Before(e.Time) {
					errs = append(errs, fmt.Errorf("ended before its %s (%s): %s", e.Name, ending{at: e.Time}, s.by))
				}
			}
		}
	}
	return errs
}
