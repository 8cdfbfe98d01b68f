package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func of(name string, outcomes map[string]outcome) *part {
	p := &part{name: name, report: report{Results: map[string]result{}}}
	for test, o := range outcomes {
		p.Results[test] = result{Outcome: o}
	}
	return p
}

func TestOnlyWhatPassesWithTheModelCanBeLost(t *testing.T) {
	stock := of("stock", map[string]outcome{
		"TestA": passed, "TestB": failed, "TestC": passed, "TestC/one": passed, "TestC/two": passed, "TestD": passed, "TestE": hung,
	})
	other := of("perdure", map[string]outcome{
		"TestA": passed, "TestB": failed, "TestC": failed, "TestC/one": passed, "TestC/two": failed, "TestD": skipped,
	})
	if lost := worse(stock, other); !slices.Equal(lost, []string{"TestC/two", "TestD"}) {
		t.Errorf("lost %v", lost)
	}
}

func TestASubtestCountsWhereItsTestFailsWithTheModel(t *testing.T) {
	stock := of("stock", map[string]outcome{"TestA": failed, "TestA/one": passed, "TestA/two": failed})
	other := of("perdure", map[string]outcome{"TestA": failed, "TestA/one": failed, "TestA/two": failed})
	if lost := worse(stock, other); !slices.Equal(lost, []string{"TestA/one"}) {
		t.Errorf("lost %v", lost)
	}
}

func TestTheVerdict(t *testing.T) {
	stock := of("stock", map[string]outcome{"TestA": passed})
	for _, c := range []struct {
		name string
		part *part
		good bool
	}{
		{"the same", of("perdure", map[string]outcome{"TestA": passed}), true},
		{"lost", of("perdure", map[string]outcome{"TestA": hung}), false},
		{"not run", of("perdure", nil), false},
		{"left behind", func() *part {
			p := of("perdure", map[string]outcome{"TestA": passed})
			p.Left = []string{"mount /run/x"}
			return p
		}(), false},
		{"never killed", func() *part {
			p := of("killed", map[string]outcome{"TestA": passed})
			p.kill = time.Second
			return p
		}(), false},
	} {
		var out bytes.Buffer
		if good := verdict(&out, []string{"TestA"}, []*part{stock, c.part}); good != c.good {
			t.Errorf("%s: %v, want %v", c.name, good, c.good)
		}
		if !strings.Contains(out.String(), "TestA") {
			t.Errorf("%s: no table", c.name)
		}
	}
}
