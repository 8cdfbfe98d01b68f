package checker

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// EventOrder checks the order of a life's events, each at its first arrival: create < start < exec-added < exec-started <
// the exec's exit < the init's exit < delete; paused and resumed in turn, after the start; nothing between the init's exit
// and the delete; an OOM before the exit it explains. After the delete nothing arrives, except that a delete may come again,
// and an exit where containerd itself may have ended the task after its keeper's death. OneExit judges their form.
func EventOrder(h History) []error { return each(h, eventOrder) }

// arrivals drops what comes again: the same event with the same time. Where an event happens once in the life of a
// process, its time does not count: containerd's own has another one.
func arrivals(events []Event) []Event {
	var first []Event
	for _, e := range events {
		again := slices.ContainsFunc(first, func(f Event) bool {
			return f.Target == e.Target && f.Name == e.Name && f.Raw == e.Raw && (!e.recurs() || f.Time.Equal(e.Time))
		})
		if !again {
			first = append(first, e)
		}
	}
	return first
}

// recurs says whether the event can happen more than once in a life.
func (e Event) recurs() bool {
	return e.Name == "paused" || e.Name == "resumed" || e.Name == "oom" || e.Name == "checkpointed"
}

// seen is what has arrived so far of a life.
type seen struct {
	names  map[string]Event // of the init, the last of each name
	execs  map[string]map[string]bool
	paused bool

	stillborn bool // no Create was answered: containerd tells the end of a task that was not to be
}

func (s *seen) has(name string) bool { _, ok := s.names[name]; return ok }

func eventOrder(l *life) []error {
	var errs []error
	s := seen{names: map[string]Event{}, execs: map[string]map[string]bool{}}
	s.stillborn = len(l.answered("", OpCreate)) == 0 && l.may("", 0, math.MaxUint64, OpCreate)
	for _, e := range arrivals(l.events) {
		if why := s.refuses(e); why != "" {
			errs = append(errs, fmt.Errorf("%s, %s", e, why))
		}
		s.take(e)
	}
	errs = append(errs, afterDelete(l)...)
	return append(errs, explained(l)...)
}

// refuses says why an event must not arrive now; "" if it may.
func (s *seen) refuses(e Event) string {
	exit, exited := s.names["exit"]
	switch {
	case s.has("delete"):
		return "after " + s.names["delete"].String()
	case exited && e.Name != "delete":
		return "after " + exit.String()
	case e.Name != "create" && !s.has("create") && !(s.stillborn && e.Exec == "" && (e.Name == "exit" || e.Name == "delete")):
		return "before the create"
	}
	switch own := s.execs[e.Exec]; e.Name {
	case "create", "start", "exec-added", "exec-started":
		if e.Exec == "" && s.has(e.Name) || own[e.Name] {
			return "which has happened before"
		}
		if e.Name == "exec-started" && !s.has("start") {
			return "before the start"
		}
		if e.Name == "exec-started" && !own["exec-added"] {
			return "before it was added"
		}
		if own["exit"] {
			return "after its exit"
		}
	case "paused":
		if !s.has("start") || s.paused {
			return "while it is not running"
		}
	case "resumed":
		if !s.paused {
			return "while it is not paused"
		}
	case "exit":
		return s.exitRefused(e, own)
	}
	return ""
}

func (s *seen) exitRefused(e Event, own map[string]bool) string {
	if e.Exec != "" {
		switch {
		case !own["exec-added"]:
			return "before it was added"
		case own["exit"]:
			return "which has happened before"
		}
		return ""
	}
	for _, exec := range slices.Sorted(maps.Keys(s.execs)) {
		if has := s.execs[exec]; has["exec-started"] && !has["exit"] {
			return "before the exit of exec " + exec
		}
	}
	return ""
}

func (s *seen) take(e Event) {
	s.paused = e.Name == "paused" || s.paused && e.Name != "resumed"
	if e.Exec == "" {
		s.names[e.Name] = e
		return
	}
	if s.execs[e.Exec] == nil {
		s.execs[e.Exec] = map[string]bool{}
	}
	s.execs[e.Exec][e.Name] = true
}

// afterDelete judges what comes again after the delete, which eventOrder does not see.
func afterDelete(l *life) []error {
	var errs []error
	deleted := -1
	for i, e := range l.events {
		switch {
		case deleted < 0 && e.Name == "delete" && e.Exec == "":
			deleted = i
		case deleted < 0 || e.Name == "delete" || l.abandoned() && e.Name == "exit":
		case slices.ContainsFunc(l.events[:deleted], func(f Event) bool { return f.Target == e.Target && f.Name == e.Name && f.Raw == e.Raw }):
			errs = append(errs, fmt.Errorf("%s came again after %s", e, l.events[deleted]))
		}
	}
	return errs
}

// explained: an OOM that has killed a process is told before the process's exit.
func explained(l *life) []error {
	var errs []error
	for _, exec := range l.processes() {
		if !l.runs[exec].OOM {
			continue
		}
		oom := slices.IndexFunc(l.events, func(e Event) bool { return e.Name == "oom" })
		exit := slices.IndexFunc(l.events, func(e Event) bool { return e.Name == "exit" && e.Exec == exec })
		if exit >= 0 && (oom < 0 || oom > exit) {
			errs = append(errs, fmt.Errorf("it was killed for want of memory, and no oom came before %s", l.events[exit]))
		}
	}
	return errs
}
