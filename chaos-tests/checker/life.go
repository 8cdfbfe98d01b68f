package checker

import (
	"cmp"
	"math"
	"slices"
)

// life is everything observed of one life of a container.
type life struct {
	Target // Exec is ""
	over   bool
	calls  []Call // by Began
	events []Event
	runs   map[string]Run // by Exec
	looks  []Look
}

// lives sorts a history by the lives it is about, in an order that does not change from run to run.
func lives(h History) []*life {
	index := map[Target]*life{}
	of := func(t Target) *life {
		t.Exec = ""
		if index[t] == nil {
			index[t] = &life{Target: t, over: h.Over, runs: map[string]Run{}}
		}
		return index[t]
	}
	for _, c := range h.Calls {
		of(c.Target).calls = append(of(c.Target).calls, c)
	}
	for _, e := range h.Events {
		of(e.Target).events = append(of(e.Target).events, e)
	}
	for _, r := range h.Runs {
		of(r.Target).runs[r.Exec] = r
	}
	for _, l := range h.Looks {
		of(l.Target).looks = append(of(l.Target).looks, l)
	}
	var all []*life
	for _, l := range index {
		slices.SortStableFunc(l.calls, func(a, b Call) int { return cmp.Compare(a.Began, b.Began) })
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *life) int {
		return cmp.Or(cmp.Compare(a.Container, b.Container), cmp.Compare(a.Life, b.Life))
	})
	return all
}

// each applies a rule about one life to all of them.
func each(h History, rule func(*life) []error) []error {
	var errs []error
	for _, l := range lives(h) {
		errs = append(errs, rule(l)...)
	}
	return errs
}

// effect is the last tick at which a call can have had its effect: one that nobody saw answered may have it any time.
func (c Call) effect() uint64 {
	if c.Code == Unanswered {
		return math.MaxUint64
	}
	return c.Ended
}

// took says whether a call had its effect, or may have had it.
func (c Call) took() bool { return c.Code == OK || c.Code == Unanswered }

// repeats says whether both are one request.
func (c Call) repeats(other Call) bool { return c.Request != 0 && c.Request == other.Request }

// may says whether one of the operations on exec can have had its effect after one tick and before another.
func (l *life) may(exec string, after, before uint64, ops ...Op) bool {
	return slices.ContainsFunc(l.calls, func(c Call) bool {
		return c.Exec == exec && c.took() && c.Began < before && c.effect() > after && slices.Contains(ops, c.Op)
	})
}

// abandoned says that a Delete of the init was not seen answered: mostly because the keeper was killed. containerd then
// tells the end of the task by itself.
func (l *life) abandoned() bool {
	return slices.ContainsFunc(l.calls, func(c Call) bool { return c.Exec == "" && c.Op == OpDelete && c.Code == Unanswered })
}

// gone says whether the process may have been deleted before a tick.
func (l *life) gone(exec string, before uint64) bool {
	return l.may("", 0, before, OpDelete) || exec != "" && l.may(exec, 0, before, OpDelete)
}

// answered returns the calls of op on exec that were answered ok.
func (l *life) answered(exec string, op Op) []Call {
	var found []Call
	for _, c := range l.calls {
		if c.Exec == exec && c.Op == op && c.Code == OK {
			found = append(found, c)
		}
	}
	return found
}

// told returns the first tick at which anybody knew that the process has ended.
func (l *life) told(exec string) (tick uint64, by string, ok bool) {
	tick = math.MaxUint64
	for _, c := range l.calls {
		if _, ended := c.end(); ended && c.Exec == exec && c.Ended < tick {
			tick, by, ok = c.Ended, c.String(), true
		}
	}
	for _, e := range l.events {
		if _, ended := e.end(); ended && e.Exec == exec && e.At < tick {
			tick, by, ok = e.At, e.String(), true
		}
	}
	return tick, by, ok
}

// execs lists the execs that anything is known of, sorted.
func (l *life) execs() []string {
	known := map[string]bool{}
	for _, c := range l.calls {
		known[c.Exec] = true
	}
	for _, e := range l.events {
		known[e.Exec] = true
	}
	for exec := range l.runs {
		known[exec] = true
	}
	delete(known, "")
	var all []string
	for exec := range known {
		all = append(all, exec)
	}
	slices.Sort(all)
	return all
}

// processes are the init ("") and the execs.
func (l *life) processes() []string { return append([]string{""}, l.execs()...) }

// process is the target of one of them.
func (l *life) process(exec string) Target { return Target{l.Container, l.Life, exec} }
