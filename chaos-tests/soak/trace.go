package soak

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"perdure/chaos-tests/checker"
)

// trace is what happened in a life, a line each, in order: calls, events, and the faults that touched its shim.
func (l *life) trace() string {
	type line struct {
		tick uint64
		text string
	}
	var all []line
	l.mu.Lock()
	for _, a := range l.asked {
		all = append(all, line{a.Began, fmt.Sprintf("%-7v %s", since(a.Ended-a.Began).Round(time.Millisecond), a)})
	}
	l.mu.Unlock()
	for _, e := range l.s.receiver.look(l.slot.ID, func(e checker.Event) bool { return e.At >= l.began }) {
		e.Life = l.n
		all = append(all, line{e.At, "        " + e.String()})
	}
	for _, f := range l.s.faults.during(l.slot, l.began, l.s.clock.tick()) {
		all = append(all, line{f.From, "        " + f.String()})
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(a.tick, b.tick) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %+v\n", l.target(""), l.plan)
	for _, one := range all {
		fmt.Fprintf(&b, "%12.6f %s\n", since(one.tick).Seconds(), one.text)
	}
	return b.String()
}
