package checker

import (
	"fmt"
	"slices"
)

// Agreement checks that State says what the runtime says, in every look that no command overlaps.
func Agreement(h History) []error { return each(h, agreement) }

func agreement(l *life) []error {
	var errs []error
	for _, look := range l.looks {
		if look.State == look.Runtime || l.overlapped(look) || l.dying(look) {
			continue
		}
		errs = append(errs, fmt.Errorf("%s [%d-%d]: State says %q, the runtime %q", look.Target, look.Began, look.Ended, look.State, look.Runtime))
	}
	return errs
}

// overlapped says whether a command can have had its effect during the look.
func (l *life) overlapped(look Look) bool {
	return slices.ContainsFunc(l.calls, func(c Call) bool {
		switch c.Op {
		case OpState, OpWait, OpPids, OpConnect, OpExec, OpCloseIO:
			return false
		}
		return c.Began < look.Ended && c.effect() > look.Began
	})
}

// dying says that the init has ended, and is not told to have because an exec lives on: to clients the container runs.
func (l *life) dying(look Look) bool {
	if look.Runtime != Stopped || look.State != Running {
		return false
	}
	for _, exec := range l.execs() {
		if tick, _, told := l.told(exec); l.may(exec, 0, look.Ended, OpStart) && (!told || tick > look.Began) {
			return true
		}
	}
	return false
}
