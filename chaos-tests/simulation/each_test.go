//go:build crashpoints

package simulation

import (
	"testing"
)

// TestEachOperation kills the worker at every step of each operation, once and beside one other thing that happens, without
// second crashes: a part of TestExhaustive, by operation. `make mutation` names its parts as those that notice a fault.
func TestEachOperation(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := newReport()
			explore(t, plan{Scenario: s.name}, bounds{pairEvents: -1}, r)
			for i, f := range r.Failed {
				if i == 3 {
					t.Errorf("and %d more", len(r.Failed)-i)
					break
				}
				t.Error(f)
			}
		})
	}
}
