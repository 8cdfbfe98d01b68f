package checker

import (
	"fmt"
	"math"
	"slices"
)

// StartedOnce checks that user code was started at most once, only where that was asked for and not refused, and exactly
// once where a start was answered ok.
func StartedOnce(h History) []error { return each(h, startedOnce) }

func startedOnce(l *life) []error {
	var errs []error
	for _, exec := range l.processes() {
		run, known := l.runs[exec]
		if !known || run.Starts == NotCounted {
			continue
		}
		who := l.process(exec)
		starts := l.answered(exec, OpStart)
		refused := slices.IndexFunc(l.calls, func(c Call) bool { return c.Exec == exec && c.Op == OpStart && !c.took() })
		switch {
		case run.Starts > 1:
			errs = append(errs, fmt.Errorf("%s: its user code was started %d times", who, run.Starts))
		case run.Starts == 0 && len(starts) > 0:
			errs = append(errs, fmt.Errorf("%s: its user code was never started: %s", who, starts[0]))
		case run.Starts == 0 || l.may(exec, 0, math.MaxUint64, OpStart):
		case refused >= 0:
			errs = append(errs, fmt.Errorf("%s: its user code was started, and each start was refused: %s", who, l.calls[refused]))
		default:
			errs = append(errs, fmt.Errorf("%s: its user code was started, and nobody has asked for that", who))
		}
	}
	return errs
}

// OneAnswer checks that a request that was answered more than once, because a worker was killed after its first answer
// or because the client asked for the same thing again, got the same answer each time.
func OneAnswer(h History) []error {
	var errs []error
	first := map[uint64]Call{}
	for _, c := range h.Calls {
		if c.Request == 0 || c.Code == Unanswered {
			continue
		}
		f, again := first[c.Request]
		if !again {
			first[c.Request] = c
			continue
		}
		if f.Op != c.Op || f.Target != c.Target || f.Code != c.Code || f.Message != c.Message || f.Pid != c.Pid || f.Status != c.Status ||
			f.State != c.State || !f.ExitedAt.Equal(c.ExitedAt) {
			errs = append(errs, fmt.Errorf("request %d has two answers: %s, and %s", c.Request, f, c))
		}
	}
	return errs
}

// Output checks the processes' outputs byte for byte.
func Output(h History) []error {
	var errs []error
	for _, run := range h.Runs {
		for _, s := range run.Streams {
			if err := s.check(); err != nil {
				errs = append(errs, fmt.Errorf("%s of %s: %w", s.Name, run.Target, err))
			}
		}
	}
	return errs
}

func (s Stream) check() error {
	same := 0
	for same < len(s.Got) && same < len(s.Want) && s.Got[same] == s.Want[same] {
		same++
	}
	switch {
	case same < len(s.Got) && same < len(s.Want):
		return fmt.Errorf("byte %d differs: %q, want %q", same, excerpt(s.Got, same), excerpt(s.Want, same))
	case same < len(s.Got):
		return fmt.Errorf("%d bytes too many: %q", len(s.Got)-same, excerpt(s.Got, same))
	case same < len(s.Want) && !s.Partial:
		return fmt.Errorf("the last %d of %d bytes are missing: %q", len(s.Want)-same, len(s.Want), excerpt(s.Want, same))
	}
	return nil
}

// excerpt is a few bytes from an offset on.
func excerpt(s string, from int) string { return s[from:min(len(s), from+32)] }

// Left checks that nothing is left behind.
func Left(h History) []error {
	var errs []error
	for _, thing := range h.Left {
		errs = append(errs, fmt.Errorf("left behind: %s", thing))
	}
	return errs
}
