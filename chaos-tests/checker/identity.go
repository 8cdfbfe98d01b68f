package checker

import "fmt"

// Identity checks that a process is the same one for everybody and over all of its life: one pid, and where it was read
// one start time. A life has one init: two creates of it that were both answered are two.
func Identity(h History) []error { return each(h, identity) }

// claim is what somebody says of which process it is.
type claim struct {
	pid   int
	start uint64
	by    string
}

func identity(l *life) []error {
	claims := map[string][]claim{}
	add := func(exec string, pid int, start uint64, by string) {
		if pid != 0 {
			claims[exec] = append(claims[exec], claim{pid, start, by})
		}
	}
	for exec, run := range l.runs {
		add(exec, run.Pid, run.Start, "the process itself")
	}
	for _, c := range l.calls {
		if c.Code == OK {
			add(c.Exec, c.Pid, c.Start, c.String())
		}
	}
	for _, e := range l.events {
		add(e.Exec, e.Pid, 0, e.String())
	}
	for _, look := range l.looks {
		add("", look.Pid, 0, fmt.Sprintf("the runtime at tick %d", look.Began))
	}
	var errs []error
	for _, exec := range l.processes() {
		errs = append(errs, oneOf(l.process(exec), claims[exec])...)
	}
	return append(errs, oncePerLife(l)...)
}

// oneOf compares each claim with the first one, and each start time with the first one known.
func oneOf(who Target, claims []claim) []error {
	var errs []error
	var start claim
	for _, c := range claims {
		if c.pid != claims[0].pid {
			errs = append(errs, fmt.Errorf("%s is process %d (%s) and process %d (%s)", who, claims[0].pid, claims[0].by, c.pid, c.by))
		}
		switch {
		case c.start == 0:
		case start.start == 0:
			start = c
		case c.start != start.start:
			errs = append(errs, fmt.Errorf("%s: its process was started at tick %d of the kernel's clock (%s) and at %d (%s)", who, start.start, start.by, c.start, c.by))
		}
	}
	return errs
}

// oncePerLife: what brings a process up is answered ok for one request alone.
func oncePerLife(l *life) []error {
	var errs []error
	for _, exec := range l.processes() {
		ops := []Op{OpStart, OpExec}
		if exec == "" {
			ops = []Op{OpStart, OpCreate}
		}
		for _, op := range ops {
			calls := l.answered(exec, op)
			for _, c := range calls[min(1, len(calls)):] {
				if !c.repeats(calls[0]) {
					errs = append(errs, fmt.Errorf("answered ok twice: %s, and %s", calls[0], c))
				}
			}
		}
	}
	return errs
}
