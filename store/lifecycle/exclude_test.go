package lifecycle

import (
	"slices"
	"testing"
)

// waits states the exclusions a second time, as rules on pairs.
func waits(a, b Target) bool {
	one := func(t Target, list ...Op) bool { return slices.Contains(list, t.Op) }
	both := func(list ...Op) bool { return one(a, list...) && one(b, list...) }
	either := func(x, y Op) bool { return a.Op == x && b.Op == y || a.Op == y && b.Op == x }
	if a.Exec != "" && b.Exec != "" && a.Exec != b.Exec {
		return false // 70 execs do not exclude each other
	}
	if a.Exec == b.Exec {
		return one(a, OpCreate, OpExec, OpDelete) || one(b, OpCreate, OpExec, OpDelete) ||
			both(OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint) ||
			either(OpPause, OpKill) || both(OpCloseIO)
	}
	init, exec := a, b
	if a.Exec != "" {
		init, exec = b, a
	}
	return one(init, OpCreate, OpDelete) ||
		exec.Op == OpStart && one(init, OpStart, OpPause, OpResume, OpCheckpoint)
}

func TestEveryPairOfIntents(t *testing.T) {
	pairs, excluded := 0, 0
	for _, a := range Commands() {
		for _, b := range Commands() {
			for _, x := range []string{"", "A", "B"} {
				for _, y := range []string{"", "A", "B"} {
					pairs++
					p, q := Target{a, x}, Target{b, y}
					if have, want := Excludes(p, q), waits(p, q); have != want {
						t.Errorf("%s while %s is open: excluded %t, want %t", q, p, have, want)
					}
					if Excludes(p, q) != Excludes(q, p) {
						t.Errorf("%s and %s: not symmetric", p, q)
					}
					if Excludes(p, q) {
						excluded++
					}
				}
			}
		}
	}
	if pairs != 900 || excluded == 0 {
		t.Errorf("%d pairs, %d excluded", pairs, excluded)
	}
}

func TestObservationsAreNeverExcluded(t *testing.T) {
	for _, open := range Commands() {
		for _, seen := range Observations() {
			for _, exec := range []string{"", "A"} {
				if Excludes(Target{open, ""}, Target{seen, exec}) || Excludes(Target{open, "A"}, Target{seen, exec}) {
					t.Errorf("%s waits for %s", seen, open)
				}
			}
		}
	}
}
