package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// entry is a package that runs in the machine.
type entry struct {
	dir   string        // below chaos-tests
	limit time.Duration // for all its tests on a machine of usual speed
}

// suite is what a run without arguments does: all that depends on the version
// of control groups, and enough besides to see that everything else is well.
var suite = []entry{
	{"lifecycle", 2 * time.Minute},
	{"kill", 2 * time.Minute},
}

// settings make those tests small whose size can be chosen, and let none be
// skipped because CRIU does not work: it does here.
var settings = []string{"PERDURE_TEST_KILLS=20", "PERDURE_TEST_DOWN=2s", "PERDURE_TEST_CRIU=1"}

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
			chosen = append(chosen, entry{dir, 5 * time.Minute})
			continue
		}
		chosen = append(chosen, suite[i])
	}
	return chosen
}

// environment is what the tests in the machine find.
func environment(slowness int) []string {
	return append([]string{
		"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root",
		"PERDURE_CACHE=" + cacheInside,
		"PERDURE_TEST_SLOW=" + strconv.Itoa(slowness),
	}, settings...)
}

// arguments are the flags of one test binary.
func (e entry) arguments(o options, slowness int) []string {
	args := []string{fmt.Sprintf("-test.timeout=%v", e.limit*time.Duration(slowness))}
	if o.run != "" {
		args = append(args, "-test.run="+o.run)
	}
	return args
}
