package soak

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// attempt is one run, with a containerd of its own that is gone when it returns.
func attempt(t *testing.T, name string, o Options) (bad *violation, kills int) {
	t.Run(name, func(t *testing.T) { bad, kills = run(t, o) })
	return bad, kills
}

// narrow looks for a smaller run that fails: with fewer containers, and without kinds of faults. Plans are the same, as each
// container and each kind of fault has choices of its own, but moments are not; so one that does not fail once more is no
// proof. It takes as long as the run itself at most, and returns the smallest that has failed.
func narrow(t *testing.T, o Options, bad *violation) (Options, *violation) {
	until := time.Now().Add(max(o.For, time.Minute))
	smaller := func(slots, faults []string) bool {
		next := o
		next.Slots, next.Faults = slots, faults
		// As long as it took the last time, and what a machine with less to do may take more.
		next.For = min(time.Duration(bad.at)+20*time.Second, time.Until(until))
		if next.For < 10*time.Second {
			return false
		}
		t.Logf("narrowing down: %s", next)
		found, _ := attempt(t, "Narrow", next)
		if found == nil {
			return false
		}
		if len(found.trace) < len(bad.trace) || len(slots) < len(bad.slots) {
			o, bad = next, found
		}
		return true
	}
	if bad.slot == nil {
		return o, bad
	}
	if !smaller([]string{bad.slot.ID}, bad.kinds) && !smaller(neighbours(*bad.slot), bad.kinds) && !smaller(neighbours(*bad.slot), o.Faults) {
		return o, bad
	}
	for _, kind := range slices.Clone(o.Faults) {
		if rest := without(o.Faults, kind); len(rest) > 0 {
			smaller(o.Slots, rest)
		}
	}
	return o, bad
}

// neighbours are the ids of those that share a shim with a slot, itself included.
func neighbours(s slot) []string {
	var ids []string
	for _, other := range slots() {
		if other.Group == s.Group {
			ids = append(ids, other.ID)
		}
	}
	return ids
}

func without(all []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == one })
}

// String is the command that makes such a run.
func (o Options) String() string {
	command := fmt.Sprintf("make soak SEED=%d MINUTES=%.1f", o.Seed, o.For.Minutes())
	if len(o.Slots) > 0 {
		command += " SLOTS=" + strings.Join(o.Slots, ",")
	}
	if len(o.Faults) > 0 {
		command += " FAULTS=" + strings.Join(o.Faults, ",")
	}
	return command
}
