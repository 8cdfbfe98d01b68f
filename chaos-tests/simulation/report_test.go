//go:build crashpoints

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// report is what a run has covered.
type report struct {
	Cases   int
	Crashes int
	Reached map[string]int  // named crash points that were passed
	Passed  map[string]int  // those of operations, without what is before and after them
	Killed  map[string]int  // and at which a worker was killed
	Steps   map[string]int  // other moments at which one was, by their kind
	States  map[uint64]bool // distinct ones
	Failed  []failure
}

// failure is a case and what was wrong.
type failure struct {
	Plan  plan
	Wrong []string
	Trace []string
}

func newReport() *report {
	return &report{Reached: map[string]int{}, Passed: map[string]int{}, Killed: map[string]int{}, Steps: map[string]int{}, States: map[uint64]bool{}}
}

func (r *report) reach(point string) { r.Reached[point]++ }

func (r *report) visit(state uint64) { r.States[state] = true }

func (r *report) kill(label string) {
	r.Crashes++
	if point, ok := strings.CutPrefix(label, "point "); ok {
		r.Killed[point]++
		return
	}
	r.Steps[strings.Fields(label)[0]]++
}

func (r *report) merge(o *report) {
	r.Cases += o.Cases
	r.Crashes += o.Crashes
	for k, n := range o.Reached {
		r.Reached[k] += n
	}
	for k, n := range o.Killed {
		r.Killed[k] += n
	}
	for k, n := range o.Steps {
		r.Steps[k] += n
	}
	maps.Copy(r.States, o.States)
	r.Failed = append(r.Failed, o.Failed...)
}

func (r *report) String() string {
	return fmt.Sprintf("%d cases, %d workers killed, at %d crash points and %d kinds of other steps; %d distinct states",
		r.Cases, r.Crashes, len(r.Killed), len(r.Steps), len(r.States))
}

// maxTrace is how much of a trace is printed.
const maxTrace = 200

func (f failure) String() string {
	trace := f.Trace
	if len(trace) > maxTrace {
		trace = slices.Concat([]string{"..."}, trace[len(trace)-maxTrace:])
	}
	return fmt.Sprintf("%s\n  %s\ntrace:\n  %s\nto repeat it: %s='%s' go test -tags crashpoints -run TestCase ./simulation",
		f.Plan, strings.Join(f.Wrong, "\n  "), strings.Join(trace, "\n  "), caseEnv, f.Plan)
}
