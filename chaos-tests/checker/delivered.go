package checker

import (
	"fmt"
	"slices"
)

// Delivered checks that no event tells of what nobody has asked for, and, in a history that is over, that nothing that
// was answered went without its event: none is lost, whoever was killed or away.
func Delivered(h History) []error { return each(h, delivered) }

// tells is which event tells of which command.
var tells = []struct {
	op    Op
	exec  bool
	event string
}{
	{OpCreate, false, "create"},
	{OpStart, false, "start"},
	{OpExec, true, "exec-added"},
	{OpStart, true, "exec-started"},
	{OpPause, false, "paused"},
	{OpResume, false, "resumed"},
	{OpCheckpoint, false, "checkpointed"},
	{OpDelete, false, "delete"},
}

func delivered(l *life) []error {
	var errs []error
	counts := map[Target]map[string]int{}
	for _, e := range arrivals(l.events) {
		if counts[e.Target] == nil {
			counts[e.Target] = map[string]int{}
		}
		counts[e.Target][e.Name]++
	}
	for _, exec := range l.processes() {
		count := counts[l.process(exec)]
		for _, t := range tells {
			if t.exec == (exec != "") {
				errs = append(errs, l.countedEvents(exec, t.op, t.event, count[t.event])...)
			}
		}
		errs = append(errs, exitDelivered(l, exec, count["exit"])...)
	}
	return errs
}

// countedEvents compares how often an event has arrived with how often its command took effect.
func (l *life) countedEvents(exec string, op Op, event string, got int) []error {
	least, most := 0, 0
	requests := map[uint64]bool{}
	for _, c := range l.calls {
		if c.Exec != exec || c.Op != op || !c.took() || c.Request != 0 && requests[c.Request] {
			continue
		}
		requests[c.Request] = c.Request != 0
		most++
		if c.Code == OK {
			least++
		}
	}
	if op == OpDelete || op == OpCreate { // a second Delete is answered as the first; containerd tells its own
		least, most = min(least, 1), max(1, most)
	}
	switch {
	case got > most && len(l.calls) > 0:
		return []error{fmt.Errorf("%s: event %s arrived %d times, and was asked for %d times", l.process(exec), event, got, most)}
	case got < least && l.over:
		return []error{fmt.Errorf("%s: event %s arrived %d times, and %s was answered %d times", l.process(exec), event, got, op, least)}
	}
	return nil
}

// exitDelivered: a process that has run, whether or not its start was answered, and which has ended, has its exit told.
func exitDelivered(l *life, exec string, got int) []error {
	if !l.over || got > 0 || !l.ran(exec) {
		return nil
	}
	_, by, told := l.told(exec)
	switch {
	case told:
		return []error{fmt.Errorf("%s: no exit event arrived, but %s", l.process(exec), by)}
	case l.runs[exec].Ended:
		return []error{fmt.Errorf("%s: it has ended, and no exit event arrived", l.process(exec))}
	}
	return nil
}

// ran says whether the user code of a process is known to have been started: its start was answered, or it has told of
// itself, or others have seen it.
func (l *life) ran(exec string) bool {
	return l.runs[exec].Starts > 0 || slices.ContainsFunc(l.calls, func(c Call) bool {
		return c.Exec == exec && c.Code == OK && (c.Op == OpStart || c.Op == OpState && (c.State == Running || c.State == Paused))
	}) || slices.ContainsFunc(l.events, func(e Event) bool {
		return e.Exec == exec && (e.Name == "start" || e.Name == "exec-started")
	})
}
