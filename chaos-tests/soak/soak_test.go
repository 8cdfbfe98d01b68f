package soak

import (
	"flag"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

var (
	seed    = flag.Uint64("seed", 1, "what the plan of operations and faults is made of; 0: another each time")
	minutes = flag.Float64("minutes", 0.5, "how long a run is to take; a failure is narrowed down for as long again")
	only    = flag.String("slots", "", "ids of the containers, with commas; empty: all")
	kinds   = flag.String("faults", "", "kinds of faults, with commas; empty: all; none: none")
	whole   = flag.Bool("whole", false, "a failure is not narrowed down")
)

// A long run is worth something with this many kills.
const (
	enough     = 20 * time.Minute
	leastKills = 1000
)

func TestSoak(t *testing.T) {
	harness.NeedsPerdure(t)
	o := Options{Seed: *seed, For: time.Duration(*minutes * float64(time.Minute)), Slots: list(*only), Faults: list(*kinds)}
	if o.Seed == 0 {
		o.Seed = harness.Seed(t)
	}
	bad, kills := attempt(t, "Run", o)
	if bad == nil {
		if whole := len(o.Slots)+len(o.Faults) == 0; whole && o.For >= enough && kills < leastKills {
			t.Errorf("workers were killed %d times in %v, want at least %d: the machine is too busy", kills, o.For, leastKills)
		}
		return
	}
	if !*whole {
		o, bad = narrow(t, o, bad)
	}
	t.Errorf("seed %d, commit %s: %v\nthe shortest trace that was found:\n%s\nonce more: %s", o.Seed, commit(), bad.err, bad.trace, o)
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}
