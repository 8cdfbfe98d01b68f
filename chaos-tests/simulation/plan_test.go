//go:build crashpoints

package simulation

import (
	"encoding/json"
	"errors"
	"slices"

	"perdure/chaos-tests/checker"
)

// plan is one case: what is done, when the worker is killed, and what happens meanwhile. As JSON it is how a case is
// named, and repeated.
type plan struct {
	Scenario string
	Private  bool     `json:",omitempty"` // the container has a pid namespace of its own
	Reverse  bool     `json:",omitempty"` // the world goes on before the worker does, not after it
	Crashes  []int    `json:",omitempty"` // the worker is killed instead of these turns, counted from the operation on
	Events   []placed `json:",omitempty"`
	Fault    string   `json:",omitempty"`

	Random    bool    `json:",omitempty"` // the order of turns is Seed's
	Seed      int64   `json:",omitempty"`
	CrashRate float64 `json:",omitempty"` // of turns, at random
	Length    int     `json:",omitempty"` // of a random sequence
}

func (p plan) String() string {
	text, _ := json.Marshal(p)
	return string(text)
}

// placed is something that happens to the container's processes, and when.
type placed struct {
	What, When string
}

// What can happen.
const (
	execExits = "exec-exit" // the exec v ends with 3
	initExits = "init-exit" // the init ends with 7
	oomKills  = "oom"       // the kernel kills v for want of memory, or the init where v is not there
)

// When it can.
const (
	before    = "before"     // the operation is asked for
	atCrash   = "at-crash"   // in the moment in which the worker is killed
	whileDead = "while-dead" // before the next worker starts
	after     = "after"      // the operation is answered
)

const victim = "v"

// environment has happen what is planned for now, once.
func (w *world) environment(when string) {
	if (when == atCrash || when == whileDead) && len(w.crashed) != 1 {
		return
	}
	for _, e := range w.plan.Events {
		if e.When == when {
			w.happen(e.What)
		}
	}
}

// happen ends a process of the container c; what cannot happen just now does not.
func (w *world) happen(what string) {
	m := w.machine
	t := checker.Target{Container: "c", Life: w.lives["c"]}
	init := m.of(t)
	t.Exec = victim
	exec := m.of(t)
	if init == nil || init.container.frozen {
		return
	}
	switch what {
	case execExits:
		if exec != nil && exec.starts > 0 {
			m.end(exec, exitCode(3))
		}
	case initExits:
		m.end(init, exitCode(7))
	case oomKills:
		if exec == nil {
			exec = init
		}
		m.outOfMemory(exec)
	}
}

// faults are what goes wrong besides the deaths of workers.
type faults struct {
	kind string
	left int
}

// The kinds of faults.
const (
	runtimeFails  = "runtime-fails"  // the first runtime call of the operation says why it cannot be done
	runtimeKilled = "runtime-killed" // it is killed after its first step in the world
	publishFails  = "publish-fails"  // containerd takes no event for a while
	strangerDies  = "stranger-dies"  // just before a process is brought up, somebody else's with its pid ends
	errorAt       = "error "         // and a crash point: the step there fails, once
)

// any says that clients may see errors that they have not caused.
func (f *faults) any() bool { return f.kind != "" && f.kind != publishFails && f.kind != strangerDies }

// at is what the step at a crash point reports.
func (f *faults) at(point string) error {
	if f.left == 0 || f.kind != errorAt+point {
		return nil
	}
	f.left--
	return errors.New("the simulation has this step fail")
}

// refuses says whether an event is refused.
func (f *faults) refuses() bool {
	if f.kind != publishFails || f.left == 0 {
		return false
	}
	f.left--
	return true
}

// inject changes what a runtime call does.
func (f *faults) inject(m *machine, c *call) {
	if f.left == 0 {
		return
	}
	switch f.kind {
	case runtimeFails:
		f.left--
		c.steps = []step{c.steps[0], {"fails", func() error { return runtimeError{"something is wrong", nil} }}}
	case strangerDies:
		f.left--
		c.steps = slices.Insert(slices.Clone(c.steps), 1, step{"sees a stranger die", func() error {
			m.ticks++
			m.world.keeper.reap(m.pid+1, m.ticks, exitCode(99))
			return nil
		}})
	case runtimeKilled:
		f.left--
		at := min(2, len(c.steps))
		c.steps = append(slices.Clone(c.steps[:at]), step{"is killed", func() error { return errKilled }})
	}
}

func (w *world) arm() {
	w.counted = true
	switch w.faults.kind = w.plan.Fault; w.faults.kind {
	case runtimeFails, runtimeKilled:
		w.faults.left = 1
	case publishFails:
		w.faults.left = 12 // 2 s and more: Delete does not wait for that
	default:
		w.faults.left = 1
	}
}

// placements are all the ways in which a set of things can happen: each at one of the times, and in every order where
// two happen at the same time.
func placements(what []string, times []string) [][]placed {
	all := [][]placed{nil}
	var extend func(done []placed, rest []string, from int)
	extend = func(done []placed, rest []string, from int) {
		for i, w := range rest {
			for t := from; t < len(times); t++ {
				next := append(slices.Clone(done), placed{w, times[t]})
				all = append(all, next)
				extend(next, slices.Delete(slices.Clone(rest), i, i+1), t)
			}
		}
	}
	extend(nil, what, 0)
	return all
}
