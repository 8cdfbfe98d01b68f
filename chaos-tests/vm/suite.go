package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// entry is a package that runs in the machine.
type entry struct {
	dir   string        // below chaos-tests
	run   string        // as `go test -run` takes it; empty: all tests
	limit time.Duration // for all its tests on a machine of usual speed
	env   []string
}

// suite is what a run without arguments does: all that depends on the version
// of control groups, and enough besides to see that everything else is well.
var suite = []entry{
	{dir: "lifecycle", run: "^(TestEventsOfALife|TestExecCodesAndOutput|TestPids|TestInitTerminal|TestEndWhileContainerdIsDown)$", limit: 2 * time.Minute},
	{dir: "cgroups", limit: 4 * time.Minute},
	{dir: "unified", limit: 2 * time.Minute},
	{dir: "api", run: "^(TestPausedContainer|TestPauseSurvivesItsWorker|TestUpdate|TestDeadline)$", limit: 2 * time.Minute},
	{dir: "kill", limit: 2 * time.Minute},
	{dir: "checkpoint", limit: 2 * time.Minute, env: []string{"PATH=" + criuInside + ":" + paths, "PERDURE_TEST_CRIU=1"}},
}

const (
	paths = "/usr/sbin:/usr/bin:/sbin:/bin"

	// criuInside is where CRIU is. Only the tests that are about it have it in
	// their PATH: where it is found, containers get other stdio.
	criuInside = "/usr/lib/criu"
)

// settings make those tests small whose size can be chosen.
var settings = []string{"PERDURE_TEST_KILLS=20", "PERDURE_TEST_OOMS=20", "PERDURE_TEST_DOWN=2s"}

// slow is how much slower than this machine an emulated one is.
const slow = 10

// choose returns what is to be run in the machine.
func choose(o options) []entry {
	switch {
	case len(o.packages) == 0 && o.script != "":
		return nil
	case len(o.packages) == 0:
		return suite
	}
	var chosen []entry
	for _, dir := range o.packages {
		i := slices.IndexFunc(suite, func(e entry) bool { return e.dir == dir })
		if i < 0 {
			chosen = append(chosen, entry{dir: dir, limit: 5 * time.Minute})
			continue
		}
		chosen = append(chosen, suite[i])
	}
	return chosen
}

// environment is what the tests in the machine find.
func environment(slowness int) []string {
	return append([]string{
		"PATH=" + paths,
		"HOME=/root",
		"PERDURE_CACHE=" + cacheInside,
		"PERDURE_TEST_SLOW=" + strconv.Itoa(slowness),
	}, settings...)
}

// arguments are the flags of one test binary.
func (e entry) arguments(o options, slowness int) []string {
	args := []string{fmt.Sprintf("-test.timeout=%v", e.limit*time.Duration(slowness))}
	if run := cmp.Or(o.run, e.run); run != "" {
		args = append(args, "-test.run="+run)
	}
	return args
}
