package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/chaos-tests/checker"
)

// stats are what a run prints at its end.
type stats struct {
	mu      sync.Mutex
	answers map[string]map[string]int // by operation and result
	longest answer
	lives   map[ending]int
}

func newStats() *stats { return &stats{answers: map[string]map[string]int{}, lives: map[ending]int{}} }

func (s *stats) add(op, result string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.answers[op] == nil {
		s.answers[op] = map[string]int{}
	}
	s.answers[op][result]++
}

func (s *stats) count(op, what string, err error) {
	if err != nil {
		what = "not " + what
	}
	s.add(op, what)
}

func (s *stats) call(a answer) {
	result := "ok"
	switch {
	case a.trouble != "":
		result = string(a.trouble)
	case a.err != nil:
		result = a.code.String()
	}
	op := string(a.Op)
	if a.Exec != "" && a.Op != checker.OpExec {
		op += " of an exec"
	}
	s.add(op, result)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Op != checker.OpWait && a.Ended-a.Began > s.longest.Ended-s.longest.Began {
		s.longest = a
	}
}

func (s *stats) life(l *life) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives[l.plan.Ending]++
}

func (s *stats) checked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, lives := range s.lives {
		n += lives
	}
	return n
}

// print is the summary of a run.
func (s *stats) print(t testing.TB, run *soak) {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v, commit %s\n", run.Seed, time.Since(run.clock.began).Round(time.Second), commit())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range slices.Sorted(maps.Keys(s.answers)) {
		fmt.Fprintf(&b, "  %-18s %s\n", op, tally(s.answers[op]))
	}
	fmt.Fprintf(&b, "  faults             %s\n", tally(run.faults.counts()))
	run.receiver.mu.Lock()
	fmt.Fprintf(&b, "  events             %d arrived, %d of them again\n", run.receiver.total, run.receiver.twice)
	run.receiver.mu.Unlock()
	fmt.Fprintf(&b, "  longest call       %v: %s\n", since(s.longest.Ended-s.longest.Began), s.longest)
	n := 0
	for _, lives := range s.lives {
		n += lives
	}
	fmt.Fprintf(&b, "  lives checked      %d: %s", n, tally(s.lives))
	t.Log(b.String())
}

// tally prints counts by name.
func tally[K ~string](counts map[K]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(all, ", ")
}

// reportEvery is how often a run says that it goes on.
const reportEvery = 30 * time.Second

func (s *soak) report(ctx context.Context) {
	for {
		pause(ctx, reportEvery)
		if ctx.Err() != nil {
			return
		}
		s.t.Logf("%v: %d lives checked, faults: %s", time.Since(s.clock.began).Round(time.Second), s.stats.checked(), tally(s.faults.counts()))
	}
}
