package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// verdict prints the table and says whether perdure did as well as stock.
func verdict(w io.Writer, tests []string, parts []*part) bool {
	printTable(w, tests, parts)
	stock, ok := parts[0], true
	for _, p := range parts[1:] {
		lost := worse(stock, p)
		for _, name := range lost {
			fmt.Fprintf(w, "\n%s passes with %s, not so with %s (%s):\n", name, stock.name, p.name, p.Results[name].Outcome)
			for _, line := range tail(p.Results[top(name)].Output, 20) {
				fmt.Fprintf(w, "    %s\n", strings.TrimSpace(line))
			}
		}
		left := slices.DeleteFunc(slices.Clone(p.Left), func(l string) bool { return slices.Contains(stock.Left, l) })
		if len(left) > 0 {
			fmt.Fprintf(w, "\nleft behind by %s, not by %s: %d things\n", p.name, stock.name, len(left))
			for _, l := range left[:min(len(left), 20)] {
				fmt.Fprintf(w, "    %s\n", l)
			}
		}
		if p.kill > 0 && p.Kills == 0 {
			fmt.Fprintf(w, "\n%s: no worker was ever killed\n", p.name)
			ok = false
		}
		ok = ok && len(lost) == 0 && len(left) == 0
	}
	for _, name := range tests {
		if stock.Results[name].Outcome == hung {
			fmt.Fprintf(w, "\n%s hangs with %s and was not run with the others\n", name, stock.name)
		}
	}
	fmt.Fprintln(w)
	for _, p := range parts {
		fmt.Fprintln(w, p.summary(stock))
	}
	return ok
}

// summary counts the top-level tests of a part.
func (p *part) summary(stock *part) string {
	count := map[outcome]int{}
	for name, r := range p.Results {
		if !strings.Contains(name, "/") {
			count[r.Outcome]++
		}
	}
	s := fmt.Sprintf("%-8s %d passed, %d failed, %d hung or crashed, %d skipped, in %v",
		p.name, count[passed], count[failed], count[hung]+count[crashed], count[skipped], p.took.Round(time.Second))
	if p != stock {
		s += fmt.Sprintf("; %d worse than stock", len(worse(stock, p)))
	}
	if p.kill > 0 {
		s += fmt.Sprintf("; %d workers killed", p.Kills)
	}
	return s
}

// worse lists the tests and subtests that pass with stock and not in p. A test
// is not named where one of its subtests is.
func worse(stock, p *part) []string {
	var lost []string
	for name, r := range stock.Results {
		if r.Outcome == passed && p.Results[name].Outcome != passed {
			lost = append(lost, name)
		}
	}
	slices.Sort(lost)
	return slices.DeleteFunc(slices.Clone(lost), func(name string) bool {
		return slices.ContainsFunc(lost, func(other string) bool { return strings.HasPrefix(other, name+"/") })
	})
}

func printTable(w io.Writer, tests []string, parts []*part) {
	fmt.Fprintf(w, "%-50s", "test")
	for _, p := range parts {
		fmt.Fprintf(w, " %-14s", p.name)
	}
	fmt.Fprintln(w)
	for _, test := range tests {
		for _, name := range rows(test, parts) {
			fmt.Fprintf(w, "%-50s", strings.Replace(name, test+"/", "  ", 1))
			for _, p := range parts {
				fmt.Fprintf(w, " %-14s", cell(p.Results[name]))
			}
			fmt.Fprintln(w)
		}
	}
}

// rows returns the test, and those of its subtests that not every part passed.
func rows(test string, parts []*part) []string {
	var subtests []string
	for _, p := range parts {
		for name := range p.Results {
			if strings.HasPrefix(name, test+"/") && !slices.Contains(subtests, name) && !allPassed(name, parts) {
				subtests = append(subtests, name)
			}
		}
	}
	slices.Sort(subtests)
	return append([]string{test}, subtests...)
}

func allPassed(name string, parts []*part) bool {
	return !slices.ContainsFunc(parts, func(p *part) bool { return p.Results[name].Outcome != passed })
}

func cell(r result) string {
	if r.Outcome == "" {
		return "-"
	}
	return fmt.Sprintf("%-5s %5.1f s", r.Outcome, r.Took.Seconds())
}

func tail(lines []string, n int) []string { return lines[max(0, len(lines)-n):] }

// told is a line of testing.T: file, line number, what was said.
var told = regexp.MustCompile(`^\s*\w+\.go:\d+: (.+)`)

// reason takes the one line out of a test's output that says most: the first
// that the test itself printed with an error in it, else its last.
func (r result) reason() string {
	if r.Outcome == hung {
		return fmt.Sprintf("no end after %v", r.Took.Round(time.Second))
	}
	var last string
	for _, line := range r.Output {
		m := told.FindStringSubmatch(line)
		if m == nil || strings.Contains(m[1], "level=") {
			continue
		}
		last = strings.TrimSpace(m[1])
	}
	return last
}
