package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// read feeds the reader what a suite prints; ! stands for the marker.
func read(t *testing.T, text string) (*reader, map[string]result) {
	t.Helper()
	results := map[string]result{}
	r := newReader(results, map[string]int{}, io.Discard)
	for line := range strings.Lines(strings.TrimSpace(text)) {
		r.take(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "!", marker))
	}
	return r, results
}

func TestResultsAreReadWithSubtests(t *testing.T) {
	_, results := read(t, `
!=== RUN   TestA
!=== RUN   TestA/one
    a_test.go:1: not as expected
!    --- FAIL: TestA/one (0.50s)
!--- FAIL: TestA (1.50s)
!=== RUN   TestB
!--- SKIP: TestB (0.00s)`)
	for name, want := range map[string]outcome{"TestA": failed, "TestA/one": failed, "TestB": skipped} {
		if got := results[name].Outcome; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if why := results["TestA"].reason(); why != "not as expected" {
		t.Errorf("reason %q", why)
	}
}

func TestOutputOfATestIsNotTakenForAResult(t *testing.T) {
	_, results := read(t, `
!=== RUN   TestA
--- FAIL: TestOther (0.00s)
no newline before!--- PASS: TestA (0.10s)`)
	if _, there := results["TestOther"]; there {
		t.Error("a test's own output made a result")
	}
	if got := results["TestA"]; got.Outcome != passed || len(got.Output) != 2 {
		t.Errorf("TestA: %+v", got)
	}
}

func TestAPausedTestIsNotTheCurrentOne(t *testing.T) {
	r, _ := read(t, `
!=== RUN   TestA
!=== PAUSE TestA
!=== RUN   TestB`)
	if r.current != "TestB" {
		t.Errorf("current test %q", r.current)
	}
	r.end(true, nil)
	if got := r.results["TestB"].Outcome; got != hung {
		t.Errorf("TestB: %q", got)
	}
	if got := r.results["TestA"].Outcome; got != "" {
		t.Errorf("TestA, which was never run: %q", got)
	}
}

func TestTheEndOfTheSuiteIsThatOfItsTest(t *testing.T) {
	r, _ := read(t, "!=== RUN   TestA")
	r.end(false, errors.New("exit status 2"))
	if got := r.results["TestA"].Outcome; got != crashed {
		t.Errorf("TestA: %q", got)
	}
}

func TestATestIsRunAgainWhoseContainerdWasTooSlow(t *testing.T) {
	again := `!=== RUN   TestA
    restart_monitor_test.go:85: context deadline exceeded: <nil>: time=...
!--- FAIL: TestA (2.18s)
`
	_, results := read(t, again+again)
	if got := results["TestA"].Outcome; got != "" {
		t.Errorf("TestA: %q, want it unfinished", got)
	}
	_, results = read(t, again+again+again)
	if got := results["TestA"].Outcome; got != failed {
		t.Errorf("TestA: %q, want it failed in the end", got)
	}
}
