//go:build chaos

package matrix

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/chaos-tests/scene"
	"perdure/internal/crash"
)

// plan is what is still to be found out about points, from what was passed.
type plan struct {
	mu    sync.Mutex
	first map[string]job      // by point: the life that passes it, without anybody dying
	after map[string][]string // by a job's name: what was passed until the call that it cut off was answered
	jobs  map[string]job
}

func newPlan() *plan {
	return &plan{first: map[string]job{}, after: map[string][]string{}, jobs: map[string]job{}}
}

// TestPoints is the matrix: every operation at every point, and every pair.
func TestPoints(t *testing.T) {
	c := newCompany(t)
	if jobs := only(t); jobs != nil {
		c.all(jobs, nil)
		return
	}
	began := time.Now()
	p := newPlan()
	c.all(lives(), p.learn)
	singles := p.singles()
	c.all(singles, p.follow)
	errs := p.errors()
	c.all(errs, nil)
	pairs := p.pairs()
	missed := c.pairs(pairs)
	c.report(time.Since(began), len(singles), len(errs), len(pairs), missed)
}

// lives are the scenes with nothing armed, with terminals where stdio is made.
func lives() []job {
	var jobs []job
	for _, s := range scene.All() {
		jobs = append(jobs, job{scene: s})
	}
	for _, name := range []string{"plain", "execs"} {
		s, _ := scene.Find(name)
		jobs = append(jobs, job{scene: s, terminal: true})
	}
	return jobs
}

// learn notes what a life passes.
func (p *plan) learn(j job, trace []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range trace {
		_, point, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "- ") || !isWorkers(point) {
			continue
		}
		key := point
		if j.terminal {
			op, _, _ := strings.Cut(point, ".")
			if op != "create" && op != "exec-start" {
				continue // terminals make no difference there
			}
			key += tty
		}
		if known, ok := p.first[key]; !ok || rank(j) < rank(known) {
			p.first[key] = j
		}
	}
}

func isWorkers(point string) bool { return slices.Contains(crash.Of(crash.Worker), point) }

// rank is the order in which a life is taken for a point.
func rank(j job) int {
	return slices.IndexFunc(scene.All(), func(s scene.Scene) bool { return s.Name == j.scene.Name })
}

// singles are the lives in which each point ends the worker once.
func (p *plan) singles() []job {
	var jobs []job
	for _, key := range slices.Sorted(maps.Keys(p.first)) {
		j := p.first[key]
		j.armed = []string{strings.TrimSuffix(key, tty)}
		jobs = append(jobs, j)
	}
	return jobs
}

// follow notes which points the next worker passes until the call that was cut off is answered.
func (p *plan) follow(j job, trace []string) {
	i := slices.IndexFunc(trace, func(line string) bool { return strings.HasSuffix(line, " "+j.armed[0]) })
	if i < 0 {
		return
	}
	dead, _, _ := strings.Cut(trace[i], " ")
	var after []string
	for _, line := range trace[i+1:] {
		pid, point, _ := strings.Cut(line, " ")
		switch {
		case pid == "-" && len(after) > 0:
			p.note(j, after)
			return
		case pid != "-" && pid != dead && isWorkers(point) && !slices.Contains(after, point):
			after = append(after, point)
		}
	}
	p.note(j, after)
}

func (p *plan) note(j job, after []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after[j.String()], p.jobs[j.String()] = after, j
}

// errors are the lives in which each step that can fail does so once.
func (p *plan) errors() []job {
	var jobs []job
	for _, point := range crash.Points() {
		if j, ok := p.first[point.Name]; ok && point.Fails {
			j.armed = []string{point.Name + " error"}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// pairs are the lives in which the worker is ended again on its way back.
func (p *plan) pairs() []job {
	var jobs []job
	for _, name := range slices.Sorted(maps.Keys(p.after)) {
		for _, point := range p.after[name] {
			j := p.jobs[name]
			j.armed = []string{j.armed[0], point}
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// pairs plays them. Which points are passed before an answer is a matter of who is faster: a pair that is not reached is
// tried once more, and then noted as missed.
func (c *company) pairs(jobs []job) (missed []string) {
	var mu sync.Mutex
	c.each(jobs, func(j job) {
		_, err := c.play(j)
		if errors.Is(err, errNotReached) {
			_, err = c.play(j)
		}
		if errors.Is(err, errNotReached) {
			mu.Lock()
			defer mu.Unlock()
			missed = append(missed, j.String())
			return
		}
		c.check(j, err)
	})
	return missed
}

// missable is the share of pairs, in percent, that may be missed: more means that they are armed wrongly, or that nothing
// follows an end any more.
const missable = 5

// report prints the table, and fails for every listed point that never fired.
func (c *company) report(took time.Duration, singles, errs, pairs int, missed []string) {
	var table strings.Builder
	for _, point := range crash.Of(crash.Worker) {
		fmt.Fprintf(&table, "\n  %-28s %5d", point, c.fired[point])
		if c.fired[point] == 0 {
			c.t.Errorf("crash point %s never fired", point)
		}
	}
	share := 100 * float64(len(missed)) / float64(max(pairs, 1))
	if pairs == 0 || share > missable {
		c.t.Errorf("%d of %d pairs were not reached again (%.1f %%), at most %d %% may", len(missed), pairs, share, missable)
	}
	c.t.Logf("measured: %d points, %d pairs (%d not reached again: %.1f %%), %d errors in %v; points and how often each has fired:%s",
		singles, pairs, len(missed), share, errs, took.Round(time.Second), table.String())
	if len(missed) > 0 {
		c.t.Logf("pairs that were not reached again: %s", strings.Join(missed, " "))
	}
}
