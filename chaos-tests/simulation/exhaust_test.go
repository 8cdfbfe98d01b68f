//go:build crashpoints

package simulation

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"perdure/internal/crash"
)

// bounds say how far the exhaustive part goes.
type bounds struct {
	events     int  // most things that happen beside one crash, at every time and in every order
	pairEvents int  // and beside two
	variants   bool // all four variants of each operation have events and second crashes, not two and one
	faults     bool // a crash at every step beside every fault as well
}

// The bounds of make test, and those of PERDURE_SIM=full.
var (
	usual = bounds{events: 1}
	full  = bounds{events: 3, pairEvents: 1, variants: true, faults: true}
)

const (
	boundsEnv    = "PERDURE_SIM"
	onlyEnv      = "PERDURE_SIM_ONLY"      // scenarios, where not all of them
	processesEnv = "PERDURE_SIM_PROCESSES" // that share the work; otherwise one for each processor
	shardEnv     = "PERDURE_SIM_SHARD"     // i/n/file: this process does every n-th part from i on and writes what it has found
)

// unreachable are the worker's crash points that the simulation does not come to, and why. Real workers are killed at them
// in chaos-tests/matrix.
var unreachable = map[string]string{}

// TestExhaustive kills the worker at every step of every operation, and at every step after that, within the bounds.
func TestExhaustive(t *testing.T) {
	if os.Getenv(shardEnv) != "" || os.Getenv(caseEnv) != "" {
		return // this process does a part, or one case
	}
	n := runtime.NumCPU()
	if given, err := strconv.Atoi(os.Getenv(processesEnv)); err == nil && given > 0 {
		n = given
	}
	r := inShards(t, n)
	kinds := map[string]int{}
	for _, f := range r.Failed {
		kind := fmt.Sprintf("%s: %.60s", f.Plan.Scenario, f.Wrong[0])
		if kinds[kind]++; kinds[kind] == 1 && len(kinds) <= 8 {
			t.Error(f)
		}
	}
	for kind, n := range kinds {
		t.Errorf("%d cases of %s ...", n, kind)
	}
	for _, point := range crash.Of(crash.Worker) {
		if os.Getenv(onlyEnv) != "" {
			break // not all can be
		}
		why, known := unreachable[point]
		switch n := r.Killed[point]; {
		case n == 0 && !known:
			t.Errorf("no worker was killed at %s (it was passed %d times)", point, r.Reached[point])
		case n > 0 && known:
			t.Errorf("%s is said to be out of reach (%s), and a worker was killed at it", point, why)
		}
	}
	t.Log("measured: simulation, every step:", r)
}

// inShards runs the parts in processes of their own: the hook of the crash points is one per process.
func inShards(t *testing.T, n int) *report {
	dir := t.TempDir()
	all := newReport()
	var merging sync.Mutex
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			file := filepath.Join(dir, fmt.Sprint(i))
			cmd := exec.Command(os.Args[0], "-test.run=^TestShard$", "-test.timeout=0")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d/%d/%s", shardEnv, i, n, file), "GOMAXPROCS=1")
			out, err := cmd.CombinedOutput()
			part := newReport()
			data, failed := os.ReadFile(file)
			if failed == nil {
				failed = json.Unmarshal(data, part)
			}
			merging.Lock()
			defer merging.Unlock()
			if err != nil || failed != nil {
				t.Errorf("part %d: %v, %v\n%s", i, err, failed, tail(out, 8<<10))
			}
			all.merge(part)
		})
	}
	running.Wait()
	return all
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }

// TestShard is one of TestExhaustive's processes.
func TestShard(t *testing.T) {
	var i, n int
	var file string
	if _, err := fmt.Sscanf(strings.ReplaceAll(os.Getenv(shardEnv), "/", " "), "%d %d", &i, &n); err != nil {
		return // only as a part of TestExhaustive
	}
	file = strings.SplitN(os.Getenv(shardEnv), "/", 3)[2]
	debug.SetGCPercent(800) // cases are short, and memory is there
	b := usual
	if os.Getenv(boundsEnv) == "full" {
		b = full
	}
	r := newReport()
	for j, part := range parts() {
		if j%n == i {
			explore(t, part, b, r)
		}
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// parts are the plans without crashes: every operation in every variant.
func parts() []plan {
	var parts []plan
	only := strings.Fields(os.Getenv(onlyEnv))
	for _, s := range scenarios {
		if len(only) > 0 && !slices.Contains(only, s.name) {
			continue
		}
		for _, private := range []bool{false, true} {
			for _, reverse := range []bool{false, true} {
				parts = append(parts, plan{Scenario: s.name, Private: private, Reverse: reverse})
			}
		}
	}
	return parts
}

// explore runs all cases of a part.
func explore(t *testing.T, part plan, b bounds, r *report) {
	ends := map[uint64]bool{}
	for _, events := range placements([]string{execExits, initExits, oomKills}, []string{before, atCrash, whileDead, after}) {
		whole := b.variants || part.Private == part.Reverse
		pairs := b.variants || !part.Private && !part.Reverse
		if len(events) > b.events || len(events) > 0 && !whole {
			continue
		}
		p := part
		p.Events = events
		exploreCrashes(t, p, r, ends, len(events) > 0, pairs && len(events) <= b.pairEvents)
	}
	for _, fault := range faultsOf(t, part, r) {
		p := part
		p.Fault = fault
		if part.Scenario == "create" && fault == runtimeKilled && !part.Private && !part.Reverse {
			exploreCrashes(t, p, r, ends, true, true) // what is left is to be removed, whoever dies over that
			continue
		}
		if b.faults || fault == strangerDies || fault == publishFails && part.Scenario == "delete" {
			exploreCrashes(t, p, r, ends, true, false)
		} else {
			run(t, p, r)
		}
	}
}

// exploreCrashes runs a plan without a crash, with one at each turn, and with a second one at each turn after that.
// Where sparse is set, and for second crashes, turns that leave the same world as the one before are left out.
func exploreCrashes(t *testing.T, p plan, r *report, ends map[uint64]bool, sparse, pairs bool) {
	base := run(t, p, r)
	for k := range base.turns {
		if sparse && k > 0 && repeats(base.world.marks, k, r) {
			continue
		}
		p.Crashes = []int{k}
		one := runUntil(t, p, r, ends, pairs)
		if one.world.known || !pairs {
			continue
		}
		for l := k + 1; l < one.turns; l++ {
			if l > k+1 && repeats(one.world.marks, l, r) {
				continue
			}
			p.Crashes = []int{k, l}
			runUntil(t, p, r, ends, false)
		}
	}
}

// repeats says whether a crash at a turn leaves what one at the turn before does. A named point at which no worker was
// killed yet counts as a new one.
func repeats(marks []mark, n int, r *report) bool {
	point, named := strings.CutPrefix(marks[n].label, "point ")
	return marks[n].left == marks[n-1].left && !(named && r.Killed[point] == 0)
}

// faultsOf are the scenario's own, and an error at each of the operation's steps that can fail.
func faultsOf(t *testing.T, part plan, r *report) []string {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == part.Scenario })
	faults := slices.Clone(scenarios[i].faults)
	passed := newReport()
	run(t, part, passed)
	failing := map[string]bool{}
	for _, p := range crash.Points() {
		failing[p.Name] = p.Fails
	}
	for _, point := range slices.Sorted(maps.Keys(passed.Passed)) {
		if failing[point] {
			faults = append(faults, errorAt+point)
		}
	}
	return faults
}
