package main

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// outcome is what became of a test.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "FAIL"
	skipped outcome = "skip"
	hung    outcome = "HANG"
	crashed outcome = "CRASH" // the suite's process ended in it
)

// result is one test in one part.
type result struct {
	Outcome outcome
	Took    time.Duration
	Output  []string // the last lines that it printed
}

// outputLines is how much of a test's output is kept for the report.
const outputLines = 60

// reader makes results of what the suite prints with -test.v=test2json: each
// line about a test begins with a SYN byte there, so that no output of a test
// is taken for one.
type reader struct {
	results map[string]result
	log     io.Writer
	current string // top-level test that runs now
	started time.Time
	output  map[string][]string // by top-level test

	starved  bool           // the current test's own containerd did not start in time
	attempts map[string]int // tests that were given another try for that
}

// late is what a test says whose containerd has not started within the two
// seconds that the suite allows it: that is about the machine's other load.
var late = regexp.MustCompile(`^\s*restart_monitor_test\.go:\d+: context deadline exceeded: `)

// maxAttempts is how often a test is run again for that.
const maxAttempts = 2

const marker = "\x16"

var (
	began = regexp.MustCompile(`^=== (RUN|CONT|NAME|PAUSE) +(\S*)`)
	ended = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)
)

var outcomes = map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": skipped}

func newReader(results map[string]result, attempts map[string]int, log io.Writer) *reader {
	return &reader{results: results, attempts: attempts, log: log, output: map[string][]string{}}
}

// take reads one line, and says whether it moved the suite on to another
// top-level test.
func (r *reader) take(line string) (moved bool) {
	fmt.Fprintln(r.log, strings.TrimPrefix(line, marker))
	// A test's output without a newline at its end comes before a marker.
	text, event, found := strings.Cut(line, marker)
	if text != "" {
		r.keep(text)
	}
	if !found {
		return false
	}
	if m := began.FindStringSubmatch(event); m != nil {
		return r.begin(m[1], top(m[2]))
	}
	if m := ended.FindStringSubmatch(event); m != nil {
		r.finish(m[2], outcomes[m[1]], m[3])
		return !strings.Contains(m[2], "/")
	}
	r.keep(event)
	return false
}

func top(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

func (r *reader) begin(what, test string) bool {
	switch {
	case what == "PAUSE":
		r.current = ""
		return true
	case test == r.current || test == "":
		return false
	}
	r.current, r.started, r.starved = test, time.Now(), false
	return true
}

func (r *reader) keep(text string) {
	if r.current == "" {
		return
	}
	r.starved = r.starved || late.MatchString(text)
	lines := append(r.output[r.current], text)
	if len(lines) > outputLines {
		lines = lines[len(lines)-outputLines:]
	}
	r.output[r.current] = lines
}

func (r *reader) finish(name string, o outcome, seconds string) {
	if name == r.current && o == failed && r.starved && r.attempts[name] < maxAttempts {
		r.attempts[name]++ // without a result it is run again
		r.current = ""
		return
	}
	res := result{Outcome: o}
	if s, err := strconv.ParseFloat(seconds, 64); err == nil {
		res.Took = time.Duration(s * float64(time.Second))
	}
	res.Output = r.output[top(name)]
	r.results[name] = res
	if name == r.current {
		r.current = ""
	}
}

// end takes note of the end of the suite's process, which is that of the test
// it was at.
func (r *reader) end(hangs bool, err error) {
	if r.current == "" {
		return
	}
	res := result{Outcome: crashed, Took: time.Since(r.started), Output: r.output[r.current]}
	if hangs {
		res.Outcome = hung
	} else if err != nil {
		res.Output = append(res.Output, err.Error())
	}
	r.results[r.current] = res
}
