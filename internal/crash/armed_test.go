package crash

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]Arming{
		"start.after-intent":         {"start.after-intent", Kill, 1},
		"start.after-intent 2":       {"start.after-intent", Kill, 2},
		"start.after-intent hold":    {"start.after-intent", Hold, 1},
		"start.after-intent error 3": {"start.after-intent", Error, 3},
	} {
		got, err := Parse(line)
		if err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", line, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != want {
			t.Errorf("%q is written as %q, which is %v, %v", line, got, again, err)
		}
	}
	for _, line := range []string{"", "p dies", "p 0", "p -1", "p 1 kill", "p 1 1", "p kill hold", "p kill 1 1"} {
		if got, err := Parse(line); err == nil {
			t.Errorf("%q is taken for %v", line, got)
		}
	}
}

func TestPointsAreListedOnce(t *testing.T) {
	all := All()
	sorted := slices.Sorted(slices.Values(all))
	if once := slices.Compact(slices.Clone(sorted)); len(once) != len(all) {
		t.Errorf("of %d points %d have a name of their own", len(all), len(once))
	}
	for _, s := range slices.Concat(workers(), keepers()) {
		for _, position := range s.fails {
			if !slices.Contains(s.positions, position) {
				t.Errorf("%s can fail at %s, which it does not pass", s.operation, position)
			}
		}
	}
}
