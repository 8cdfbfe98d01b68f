//go:build crashpoints

package simulation

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"perdure/chaos-tests/checker"
)

// random is a scenario that its seed decides: what is asked for and what happens, in which order the world goes on, and
// when the worker is killed.
var random = scenario{"random", func(*world) {}, randomly, nil}

func randomly(w *world) {
	var execs []checker.Target
	for range w.plan.Length {
		id := []string{"c", "d"}[w.random.Intn(2)]
		if w.lives[id] == 0 || w.gone[id] {
			w.create(id)
			w.answers()
			continue
		}
		execs = w.anything(id, execs)
		if w.random.Intn(3) == 0 { // else the next goes beside it
			w.answers()
		}
	}
}

// anything asks for something, or has something happen. Illegal is as good as legal.
func (w *world) anything(id string, execs []checker.Target) []checker.Target {
	exec := ""
	if len(execs) > 0 {
		if t := execs[w.random.Intn(len(execs))]; t.Container == id && t.Life == w.lives[id] {
			exec = t.Exec
		}
	}
	switch w.random.Intn(16) {
	case 0, 1:
		w.begin(id, "")
	case 2, 3:
		added := fmt.Sprint("e", len(execs)+1)
		w.add1(id, added)
		return append(execs, checker.Target{Container: id, Life: w.lives[id], Exec: added})
	case 4, 5:
		w.begin(id, exec)
	case 6:
		w.kill(id, exec, 9, false)
	case 7:
		if exec != "" {
			w.del(id, exec)
		}
	case 8:
		w.pause(id)
	case 9, 10:
		w.resume(id)
	case 11:
		w.update(id)
	case 12:
		w.state(id, exec)
	case 13:
		w.wait(id, exec)
	case 14:
		w.perish(id, exec)
	case 15:
		if w.random.Intn(3) == 0 {
			w.kill(id, "", 9, true)
			w.answers()
			w.del(id, "")
			w.answers()
		}
	}
	return execs
}

// perish ends a process of a container's.
func (w *world) perish(id, exec string) {
	p := w.machine.of(checker.Target{Container: id, Life: w.lives[id], Exec: exec})
	if p == nil || p.starts == 0 || p.container.frozen {
		return
	}
	w.settle() // it lives for a moment
	if p.ended || p.container.frozen {
		return
	}
	if w.random.Intn(3) == 0 {
		w.machine.outOfMemory(p)
		return
	}
	w.machine.end(p, exitCode(w.random.Intn(100)))
}

// TestRandom lives random lives. PERDURE_SEED is the first one's seed, PERDURE_SIM_LIVES how many there are.
func TestRandom(t *testing.T) {
	debug.SetGCPercent(800)
	seed, lives := time.Now().UnixNano()%1e6, 100
	if n, err := strconv.ParseInt(os.Getenv("PERDURE_SEED"), 10, 64); err == nil {
		seed = n
	}
	if n, err := strconv.Atoi(os.Getenv("PERDURE_SIM_LIVES")); err == nil {
		lives = n
	}
	r := newReport()
	for i := range lives {
		p := plan{Scenario: random.name, Seed: seed + int64(i), Random: true, CrashRate: 0.02, Length: 30, Private: i%2 == 0}
		first := run(t, p, r)
		if i%20 == 0 {
			again(t, p, first)
		}
	}
	for i, f := range r.Failed {
		if i < 3 {
			t.Error(f)
		}
	}
	t.Logf("measured: simulation, random from seed %d: %s", seed, r)
}
