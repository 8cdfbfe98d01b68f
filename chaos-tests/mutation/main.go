package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
)

func main() {
	only := flag.String("mutant", "", "run the mutants whose whole name matches this regular expression")
	update := flag.Bool("update", false, "write README.md from the list")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := conduct(ctx, *only, *update); err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(1)
	}
}

func conduct(ctx context.Context, only string, update bool) error {
	tree, err := daemon.Tree()
	if err != nil {
		return err
	}
	if update {
		return os.WriteFile(filepath.Join(tree, chaos, "mutation", "README.md"), []byte(document(mutants())), 0o644)
	}
	wanted, err := regexp.Compile("^(?:" + only + ")$")
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	r := &run{tree: tree, sound: map[catcher]control{}}
	for _, m := range mutants() {
		if only == "" || wanted.MatchString(m.name) {
			r.judge(ctx, m)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Printf("\n%d mutants, %d caught by the test that the list names\n", r.all, r.caught)
	if r.all == 0 {
		return errors.New("there is no such mutant")
	}
	if r.caught < r.all {
		return fmt.Errorf("not as they should be: %s", strings.Join(r.amiss, ", "))
	}
	return nil
}

// run is one run of mutants.
type run struct {
	tree        string
	sound       map[catcher]control
	all, caught int
	amiss       []string
}

// judge says of one mutant whether it is caught as the list says.
func (r *run) judge(ctx context.Context, m mutant) {
	begun := time.Now()
	r.all++
	verdict, ok := r.try(ctx, m)
	word := "caught"
	if ok {
		r.caught++
	} else {
		word = "AMISS"
		r.amiss = append(r.amiss, m.name)
	}
	fmt.Printf("%-7s %-34s %5.1f s  %s\n", word, m.name, time.Since(begun).Seconds(), verdict)
}

// try runs the tests over one mutant.
func (r *run) try(ctx context.Context, m mutant) (verdict string, ok bool) {
	scratch, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err.Error(), false
	}
	defer os.RemoveAll(scratch)
	overlay, err := prepare(r.tree, scratch, m)
	if err != nil {
		return err.Error(), false
	}
	b := &bench{tree: r.tree, overlay: overlay, scratch: scratch, limit: setLimit}
	if named := m.catcher(); named.test != "" {
		sound := r.control(ctx, named)
		if sound.err != nil {
			return fmt.Sprintf("%s without the fault: %v", named, sound.err), false
		}
		b.limit = leastLimit + 5*sound.took
		switch result, err := b.run(ctx, named); {
		case err != nil:
			return explain(err, result.output), false
		case result.failed != "":
			return named.String(), true
		}
		b.limit = setLimit
	}
	for _, c := range r.search(m) {
		result, err := b.run(ctx, c)
		if err != nil {
			return explain(err, result.output), false
		}
		if result.failed != "" {
			return fmt.Sprintf("the list should name %s, not %q", result.failed, m.by), false
		}
	}
	return "it SURVIVES: no test has noticed; write one", false
}

// control is a run of a test without any fault. One that fails then notices nothing.
type control struct {
	took time.Duration
	err  error
}

func (r *run) control(ctx context.Context, c catcher) control {
	if known, ok := r.sound[c]; ok {
		return known
	}
	scratch, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return control{err: err}
	}
	defer os.RemoveAll(scratch)
	result, err := (&bench{tree: r.tree, scratch: scratch, limit: soundLimit}).run(ctx, c)
	switch {
	case err != nil:
		err = errors.New(explain(err, result.output))
	case result.failed != "":
		err = errors.New(explain(fmt.Errorf("%s fails", result.failed), result.output))
	}
	r.sound[c] = control{result.took, err}
	return r.sound[c]
}

// search lists where to look for a test that notices, the cheapest first.
func (r *run) search(m mutant) []catcher {
	dirs := []string{m.room()}
	if out, err := exec.Command("go", "list", "-C", r.tree, "-f", "{{if .TestGoFiles}}{{.ImportPath}}{{else if .XTestGoFiles}}{{.ImportPath}}{{end}}", "./...").Output(); err == nil {
		for _, pkg := range strings.Fields(string(out)) {
			dirs = append(dirs, strings.TrimPrefix(strings.TrimPrefix(pkg, "perdure"), "/"))
		}
	}
	for _, real := range []string{"simulation", "crash", "recovery", "deletion", "lifecycle", "cases"} {
		dirs = append(dirs, chaos+"/"+real)
	}
	var list []catcher
	for _, dir := range dirs {
		if c := (catcher{dir: dir}); !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// prepare writes the mutated file and the overlay that puts it in the place of the tree's.
func prepare(tree, scratch string, m mutant) (overlay string, err error) {
	source, err := m.mutate(tree)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(scratch, filepath.Base(m.file))
	overlay = filepath.Join(scratch, "overlay.json")
	replace := map[string]map[string]string{"Replace": {filepath.Join(tree, m.file): mutated}}
	text, err := json.Marshal(replace)
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(mutated, []byte(source), 0o600), os.WriteFile(overlay, text, 0o600))
}

// explain adds the end of the output to an error.
func explain(err error, output []byte) string {
	const tail = 4 << 10
	return fmt.Sprintf("%v\n%s", err, output[max(0, len(output)-tail):])
}
