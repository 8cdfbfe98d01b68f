// Command report reads the output of `go test -json` and prints what a person
// wants to know of it: a line for each package, or with -v for each test, the
// output of failed tests, what was measured, and at the end which tests were
// skipped and why. It fails when a test failed or none was run.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// line is one line of `go test -json`: see `go doc cmd/test2json`.
type line struct {
	Action     string
	Package    string
	ImportPath string // of build-output lines
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

type report struct {
	out     io.Writer
	verbose bool

	output                  map[string]*strings.Builder // by package and test
	passed, failed, skipped int
	broken                  bool // a package failed without a failing test
	skips                   []string
}

// measured marks lines that are printed also when their test passes.
const measured = "measured: "

func main() {
	verbose := flag.Bool("v", false, "print a line for each test")
	flag.Parse()
	r := &report{out: os.Stdout, verbose: *verbose, output: map[string]*strings.Builder{}}
	if err := r.read(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	if !r.finish() {
		os.Exit(1)
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			fmt.Fprintln(r.out, lines.Text()) // not of a test: the tool's own words
			continue
		}
		r.take(l)
	}
	return lines.Err()
}

func (r *report) take(l line) {
	switch l.Action {
	case "output":
		r.collect(l)
	case "build-output":
		fmt.Fprint(r.out, l.Output)
	case "build-fail":
		r.broken = true
	case "pass", "fail", "skip":
		if l.Test == "" {
			r.endPackage(l)
		} else {
			r.endTest(l)
		}
	}
}

func (r *report) collect(l line) {
	if i := strings.Index(l.Output, measured); i >= 0 {
		fmt.Fprint(r.out, l.Output[i:])
	}
	if strings.HasPrefix(l.Output, "=== ") {
		return
	}
	key := l.Package + " " + l.Test
	if r.output[key] == nil {
		r.output[key] = &strings.Builder{}
	}
	r.output[key].WriteString(l.Output)
}

// said returns and forgets what a test or package printed.
func (r *report) said(l line) string {
	key := l.Package + " " + l.Test
	b := r.output[key]
	delete(r.output, key)
	if b == nil {
		return ""
	}
	return b.String()
}

func (r *report) endTest(l line) {
	said := r.said(l)
	switch l.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Fprintf(r.out, "FAIL %s %s (%.1f s)\n%s", l.Package, l.Test, l.Elapsed, said)
	case "skip":
		r.skipped++
		r.skips = append(r.skips, fmt.Sprintf("%s %s: %s", l.Package, l.Test, reason(said)))
	}
	if r.verbose && l.Action != "fail" && !strings.Contains(l.Test, "/") {
		fmt.Fprintf(r.out, "  %s %s (%.1f s)\n", l.Action, l.Test, l.Elapsed)
	}
}

// reason takes the words of t.Skip out of a skipped test's output.
func reason(said string) string {
	for text := range strings.Lines(said) {
		if text = strings.TrimSpace(text); text != "" && !strings.HasPrefix(text, "--- ") {
			_, why, found := strings.Cut(text, ": ") // file and line come first
			if found {
				return why
			}
			return text
		}
	}
	return "no reason given"
}

func (r *report) endPackage(l line) {
	said := r.said(l)
	switch l.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok   %s (%.1f s)\n", l.Package, l.Elapsed)
	case "fail":
		r.broken = true
		fmt.Fprintf(r.out, "FAIL %s (%.1f s)\n%s", l.Package, l.Elapsed, said)
	}
}

// finish prints the end of the report and says whether all is well.
func (r *report) finish() bool {
	if len(r.skips) > 0 {
		fmt.Fprintf(r.out, "\nskipped:\n  %s\n", strings.Join(r.skips, "\n  "))
	}
	fmt.Fprintf(r.out, "\n%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	return r.failed == 0 && !r.broken && r.passed > 0
}
