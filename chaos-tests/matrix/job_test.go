//go:build chaos

package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/scene"
	"perdure/chaos-tests/wait"
	"perdure/internal/crash"
)

const jobLimit = 4 * time.Minute

// lanes is how many lives go on at the same time: they wait more than they work.
var lanes = func() int {
	var n int
	if _, err := fmt.Sscan(os.Getenv("PERDURE_CHAOS_LANES"), &n); err != nil || n < 1 {
		return 8
	}
	return n
}()

// job is one life with what is armed in it.
type job struct {
	scene    scene.Scene
	terminal bool
	armed    []string // lines, each after the one before has fired
}

func (j job) String() string {
	name := j.scene.Name
	if j.terminal {
		name += tty
	}
	return name + "/" + strings.ReplaceAll(strings.Join(j.armed, "+"), " ", "=")
}

const tty = "-tty"

// parse reads a job's name.
func parse(name string) (job, error) {
	where, armed, _ := strings.Cut(name, "/")
	plain, terminal := strings.CutSuffix(where, tty)
	s, err := scene.Find(plain)
	j := job{scene: s, terminal: terminal}
	if armed != "" {
		j.armed = strings.Split(strings.ReplaceAll(armed, "=", " "), "+")
	}
	return j, err
}

// only are the jobs that RUN names, nil for all.
func only(t *testing.T) []job {
	t.Helper()
	var jobs []job
	for _, name := range strings.Fields(os.Getenv("PERDURE_CHAOS_RUN")) {
		j, err := parse(name)
		harness.Check(t, err)
		jobs = append(jobs, j)
	}
	return jobs
}

// company plays jobs, all with one daemon.
type company struct {
	t       *testing.T
	h       *harness.Harness
	crashes *harness.Crashes
	options any
	spec    []oci.SpecOpts

	ids    atomic.Int64
	failed atomic.Int64
	landed atomic.Int64 // blows that have found their runc alive

	mu    sync.Mutex
	fired map[string]int // by point
}

func newCompany(t *testing.T) *company {
	h, crashes := harness.NewWithCrashes(t)
	return &company{t: t, h: h, crashes: crashes, fired: map[string]int{}}
}

// again is the command that plays a job again.
func (c *company) again(name string) string {
	return fmt.Sprintf("make chaos TEST=%s RUN='%s'", c.t.Name(), name)
}

// tooMany ends a run that has gone wrong altogether.
const tooMany = 25

// all plays the jobs, and hands on what each has passed.
func (c *company) all(jobs []job, passed func(job, []string)) {
	c.each(jobs, func(j job) {
		trace, err := c.play(j)
		if c.check(j, err) && passed != nil {
			passed(j, trace)
		}
	})
}

// each has one called for each job, in lanes, and last for those that have to be alone. It stops when too many have failed.
func (c *company) each(jobs []job, one func(job)) {
	var alone []job
	queue := make(chan job)
	var players sync.WaitGroup
	for range lanes {
		players.Go(func() {
			for j := range queue {
				if c.failed.Load() < tooMany {
					one(j)
				}
			}
		})
	}
	for _, j := range jobs {
		if j.scene.Alone {
			alone = append(alone, j)
			continue
		}
		queue <- j
	}
	close(queue)
	players.Wait()
	for _, j := range alone {
		if c.failed.Load() < tooMany {
			one(j)
		}
	}
}

// check says whether a job went well, and how to play it again if not.
func (c *company) check(j job, err error) bool {
	if err != nil {
		c.failed.Add(1)
		c.t.Errorf("%v\n  again: %s", err, c.again(j.String()))
	}
	return err == nil
}

// errNotReached says that a point did not fire.
var errNotReached = errors.New("was not reached")

// play plays one job and returns what was passed.
func (c *company) play(j job) (trace []string, err error) {
	id := fmt.Sprintf("j%d", c.ids.Add(1))
	own, err := c.crashes.Group(id)
	if err != nil {
		return nil, err
	}
	var lines []string
	for i, armed := range j.armed {
		if i > 0 {
			lines = append(lines, crash.Then)
		}
		lines = append(lines, armed)
	}
	if err := errors.Join(own.Arm(lines...), own.Trace()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.h.Context(), wait.Limit(jobLimit))
	defer cancel()
	stage := scene.Stage{
		H: c.h, ID: id, Terminal: j.terminal, Options: c.options, Spec: c.spec,
		Note:  func(line string) { _ = own.Note(line) },
		Again: func(err error) bool { return strings.Contains(err.Error(), "an error, as armed") },
	}
	if err := j.scene.Play(ctx, stage); err != nil {
		return nil, fmt.Errorf("%s, as %s: %w", j, id, err)
	}
	for _, point := range j.points() {
		want := len(slices.DeleteFunc(j.points(), func(p string) bool { return p != point }))
		if err := own.Await(ctx, point, want); err != nil {
			return nil, fmt.Errorf("%s, as %s: %s %w: %w", j, id, point, errNotReached, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, point := range j.points() {
		c.fired[point]++
	}
	return own.Traced()
}

// points are those that are armed.
func (j job) points() []string {
	var names []string
	for _, line := range j.armed {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}
