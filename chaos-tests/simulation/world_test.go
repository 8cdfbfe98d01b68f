//go:build crashpoints

package simulation

import (
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"perdure/chaos-tests/checker"
	"perdure/internal/crash"
)

// world is everything outside the worker, and the driver that lets one thing happen after the other.
//
// Whatever can happen next waits for its turn: a worker's calls of its ports and its crash points, the next step of a
// runtime call, an exit or a request that is to be given to the worker. The driver waits until nothing runs any more
// (synctest.Wait), gives one of the waiting its turn, and waits again. So the order is the driver's, and at a crash the
// whole worker stands still: no transaction is half done, and what it would have done next does not happen.
type world struct {
	plan   plan
	dir    string // of the bundles
	random *rand.Rand

	mu      sync.Mutex // of all that follows; never held while anything waits
	waiting []*turn
	bell    chan struct{} // rung when something has begun to wait, or was answered

	worker  *worker
	workers int
	keeper  *keeper
	machine *machine
	faults  faults

	tick    uint64
	history checker.History
	trace   []string
	broken  []string // what must not be, found on the way
	counted bool     // turns are counted: a plan's crashes are at these numbers
	turns   int
	crashed []string // what each crash prevented
	report  *report

	lives    map[string]int  // by container id: which life it is in
	gone     map[string]bool // its Delete was answered
	targets  []checker.Target
	asked    []*asked
	copies   int
	journals []string        // what was in each at the last crash
	ends     map[uint64]bool // states after a crash from which everything is known already; nil: none are
	known    bool            // this case has come to one: it ends there
	marks    []mark          // of each turn, where marking: what the world was like then
	marking  bool
}

// turn is something that waits to happen.
type turn struct {
	class   int
	label   string
	worker  *worker   // whose it is, nil for the world's own
	run     func()    // what is done by the driver
	granted chan bool // instead: tells who waits; false ends its goroutine
}

// The classes of turns, in the order in which they are given where nothing else is said.
const (
	classWorker = iota // a port call, a crash point
	classExit          // an exit is given to the worker
	classCall          // a request is given to the worker
	classWorld         // a step of a runtime call
)

func newWorld(p plan, dir string, r *report) *world {
	w := &world{plan: p, dir: dir, bell: make(chan struct{}, 1), random: rand.New(rand.NewSource(p.Seed)), report: r,
		lives: map[string]int{}, gone: map[string]bool{}}
	w.keeper = &keeper{world: w, names: map[string]*stored{}}
	w.machine = newMachine(w)
	crash.Hook = w.point
	return w
}

// note adds a line to the trace. Called with or without mu held by nobody else: the driver alone lets things happen.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) violation(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) now() uint64 {
	w.tick++
	return w.tick
}

func (w *world) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// add has something wait for its turn.
func (w *world) add(t *turn) {
	w.mu.Lock()
	w.waiting = append(w.waiting, t)
	w.mu.Unlock()
	w.ring()
}

// take waits for a goroutine's turn. That of a worker that is killed meanwhile ends here.
func (w *world) take(k *worker, label string) {
	if k.isDead() {
		runtime.Goexit()
	}
	t := &turn{class: classWorker, label: label, worker: k, granted: make(chan bool, 1)}
	w.add(t)
	if !<-t.granted {
		runtime.Goexit()
	}
}

// point is a crash point of the worker's: the place to kill it.
func (w *world) point(name string) error {
	w.mu.Lock()
	k := w.worker
	w.mu.Unlock()
	// A goroutine of a dead worker can get here until it is ended.
	if k == nil || k.isDead() {
		runtime.Goexit()
	}
	w.take(k, "point "+name)
	return w.faults.at(name)
}

// next chooses among what waits: by class and name, or as the seed says.
func (w *world) next() *turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return nil
	}
	order := func(t *turn) int {
		if w.plan.Reverse {
			return -t.class
		}
		return t.class
	}
	slices.SortStableFunc(w.waiting, func(a, b *turn) int {
		if a.class != b.class {
			return order(a) - order(b)
		}
		return strings.Compare(a.label, b.label)
	})
	i := 0
	if w.plan.Random {
		i = w.random.Intn(len(w.waiting))
	}
	t := w.waiting[i]
	w.waiting = slices.Delete(w.waiting, i, i+1)
	return t
}

// settle lets everything happen that waits, until nothing does. Timers do not run on meanwhile.
func (w *world) settle() {
	for {
		synctest.Wait()
		if w.known {
			return
		}
		w.rescue()
		t := w.next()
		if t == nil {
			return
		}
		w.give(t)
	}
}

// give gives one its turn, or kills the worker instead, where the plan says so.
func (w *world) give(t *turn) {
	if name, ok := strings.CutPrefix(t.label, "point "); ok {
		w.report.reach(name)
		if w.counted {
			w.report.Passed[name]++
		}
		if len(w.crashed) >= len(w.plan.Crashes) { // what is before was seen without the crash
			w.visit(t)
		}
	}
	if w.counted && w.alive() {
		n := w.turns
		w.turns++
		w.mark(t)
		if slices.Contains(w.plan.Crashes, n) || w.plan.CrashRate > 0 && w.random.Float64() < w.plan.CrashRate {
			w.crashed = append(w.crashed, t.label)
			w.report.kill(t.label)
			w.environment(atCrash)
			w.crash(t)
			return
		}
	}
	if w.plan.Random {
		time.Sleep(time.Microsecond) // of the bubble: in a long life no two moments have the same time
	}
	w.note("%s", t.label)
	if t.run != nil {
		t.run()
		return
	}
	t.granted <- true
}

// until lets the world go on, its clock included, until something holds. It is said where it does not in time.
func (w *world) until(what string, holds func() bool) bool {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		w.settle()
		if w.known || holds() {
			return true
		}
		select {
		case <-w.bell:
		case <-limit.C:
			w.violation("%s: still not so after %v", what, patience)
			return false
		}
	}
}

// pass lets time go by.
func (w *world) pass(d time.Duration) {
	end := time.NewTimer(d)
	defer end.Stop()
	for !w.known {
		w.settle()
		select {
		case <-w.bell:
		case <-end.C:
			w.settle()
			return
		}
	}
}

// patience is the simulated time after which a client that was not answered hangs.
const patience = 10 * time.Minute

func (w *world) alive() bool { return w.worker != nil && !w.worker.isDead() }

// visit counts the states that the world and the worker's view of it are seen in.
func (w *world) visit(t *turn) {
	h := fnv.New64a()
	fmt.Fprintln(h, t.label, w.alive())
	w.keeper.describe(h)
	w.machine.describe(h)
	if w.alive() {
		w.worker.describe(h)
	}
	w.report.visit(h.Sum64())
}

// traceHash is equal for runs in which the same things happened in the same order.
func (w *world) traceHash() uint64 {
	h := fnv.New64a()
	for _, line := range w.trace {
		fmt.Fprintln(h, strings.ReplaceAll(line, w.dir, ""))
	}
	return h.Sum64()
}

// left is what is still there when all is over.
func (w *world) left() []string {
	var left []string
	left = append(left, w.keeper.left()...)
	left = append(left, w.machine.left()...)
	_ = filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != w.dir {
			left = append(left, strings.TrimPrefix(path, w.dir))
		}
		return nil
	})
	return left
}
