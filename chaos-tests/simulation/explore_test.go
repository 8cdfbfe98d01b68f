//go:build crashpoints

package simulation

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/containerd/log"

	"perdure/internal/crash"
)

const caseEnv = "PERDURE_SIM_CASE"

// outcome of one case.
type outcome struct {
	wrong []string
	turns int // of the operation, without what is before and after it
	world *world
}

// run lives one case in a bubble of its own.
func run(t *testing.T, p plan, r *report) outcome { return runUntil(t, p, r, nil, true) }

// runUntil is run that stops where everything that follows is known, and notes turns that differ only where marking.
func runUntil(t *testing.T, p plan, r *report, ends map[uint64]bool, marking bool) outcome {
	t.Helper()
	var o outcome
	top, err := os.MkdirTemp(scratch(), "perdure-sim-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(top)
	dir := filepath.Join(top, "bundles")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(p, dir, r)
		w.ends, w.marking = ends, marking
		all := append(slices.Clone(scenarios), random)
		i := slices.IndexFunc(all, func(s scenario) bool { return s.name == p.Scenario })
		if i < 0 {
			t.Fatalf("no scenario %q", p.Scenario)
		}
		o.wrong = w.live(all[i])
		o.turns, o.world = w.turns, w
		crash.Hook = nil
	})
	r.Cases++
	if len(o.wrong) > 0 {
		r.Failed = append(r.Failed, failure{p, o.wrong, o.world.trace})
	}
	return o
}

// scratch is memory where there is some: the journals are small and many.
func scratch() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func TestMain(m *testing.M) {
	log.L.Logger.SetOutput(io.Discard)
	// Where one event wakes two of the worker's goroutines, which of them is first is Go's choice: with one processor it is
	// the same each time.
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// TestCase repeats one case, with all of its trace.
func TestCase(t *testing.T) {
	text := os.Getenv(caseEnv)
	if text == "" {
		return // there is none to repeat
	}
	if os.Getenv("PERDURE_SIM_LOG") != "" {
		log.L.Logger.SetOutput(os.Stderr)
		_ = log.SetLevel("debug")
	}
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	o := run(t, p, newReport())
	for _, line := range o.world.trace {
		fmt.Println(line)
	}
	for _, wrong := range o.wrong {
		t.Error(wrong)
	}
}

// again runs a case again: the same happens, in the same order. Once in a while the Go scheduler takes the processor
// from a goroutine in between, so there is a third try.
func again(t *testing.T, p plan, first outcome) {
	t.Helper()
	want := first.world.traceHash()
	for range 2 {
		if run(t, p, newReport()).world.traceHash() == want {
			return
		}
	}
	t.Errorf("%s: three times the same, and another trace than the first time twice", p)
}

// TestBase: every operation, without a crash, is as it should be, and the same twice.
func TestBase(t *testing.T) {
	r := newReport()
	for _, s := range scenarios {
		for _, private := range []bool{false, true} {
			for _, reverse := range []bool{false, true} {
				p := plan{Scenario: s.name, Private: private, Reverse: reverse}
				again(t, p, run(t, p, r))
			}
		}
	}
	for _, f := range r.Failed {
		t.Error(f)
	}
	t.Log(r)
}
