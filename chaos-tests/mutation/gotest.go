package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// catcher is a test, or a set of them.
type catcher struct {
	dir  string // of the package, within the tree
	test string // "": every one of the package
}

func (c catcher) String() string { return strings.TrimSpace(c.dir + " " + c.test) }

// The time that tests are given. One that hangs has noticed the fault.
const (
	setLimit   = 15 * time.Minute // all tests of a package
	soundLimit = 5 * time.Minute  // one test, without a fault
	leastLimit = 15 * time.Second // besides five times what it takes without
)

const chaos = "chaos-tests"

const simulation = chaos + "/simulation"

// real says whether the test runs the product's binaries.
func (c catcher) real() bool {
	return strings.HasPrefix(c.dir, chaos+"/") && c.dir != simulation
}

// pattern is what -run takes; a subtest is named with all tests it is in.
func (c catcher) pattern() string {
	var parts []string
	for part := range strings.SplitSeq(c.test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	return strings.Join(parts, "/")
}

// bench runs tests over a tree with one fault in it, or with none.
type bench struct {
	tree    string
	overlay string        // "": no fault
	limit   time.Duration // of a run of tests
	bin     string        // directory of binaries with the fault; "": not built yet
	scratch string
}

// errBuild says that the fault does not compile, which proves nothing.
var errBuild = errors.New("it does not compile")

// result is what has come of a run of tests.
type result struct {
	failed string        // the test that has failed, "" if none did
	took   time.Duration // without compilation
	output []byte
}

// run runs tests. An error says that they have proved nothing.
func (b *bench) run(ctx context.Context, c catcher) (result, error) {
	args := []string{"test", "-json", "-count=1", "-vet=off", "-failfast", "-timeout", b.limit.String()}
	if b.overlay != "" {
		args = append(args, "-overlay", b.overlay)
	}
	if c.test != "" {
		args = append(args, "-run", c.pattern())
	}
	module, pkg := b.tree, "./"+c.dir
	if rest, ok := strings.CutPrefix(c.dir, chaos+"/"); ok {
		module, pkg = filepath.Join(b.tree, chaos), "./"+rest
		args = append(args, "-tags", "crashpoints")
	}
	env := os.Environ()
	if c.real() {
		if err := b.build(ctx); err != nil {
			return result{}, err
		}
		env = append(env, "PERDURE_BIN="+b.bin)
	}
	// Compilation and the clean-up of a test that hangs come on top; a test binary that ignores its limit ends here.
	ctx, cancel := context.WithTimeout(ctx, b.limit+10*time.Minute)
	defer cancel()
	args = append(args, pkg)
	if usesRapid(filepath.Join(b.tree, c.dir)) {
		args = append(args, "-args", "-rapid.nofailfile") // it would write what it has found into the tree
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = module, env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second // what a test leaves behind may have the pipe
	err := cmd.Run()
	reapStrays()
	if cmd.ProcessState == nil || ctx.Err() != nil {
		return result{output: out.Bytes()}, fmt.Errorf("run %s: %w", c, errors.Join(err, ctx.Err()))
	}
	return verdict(out.Bytes(), cmd.ProcessState.Success(), module, b.tree)
}

// usesRapid says whether tests of a package are properties.
func usesRapid(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		text, _ := os.ReadFile(file)
		return bytes.Contains(text, []byte(`"pgregory.net/rapid"`))
	})
}

// build makes the binaries that the tests with real ones use.
func (b *bench) build(ctx context.Context) error {
	if b.bin != "" {
		return nil
	}
	bin := filepath.Join(b.scratch, "bin")
	test := filepath.Join(bin, "test")
	if err := os.MkdirAll(filepath.Join(test, "crashpoints"), 0o755); err != nil {
		return err
	}
	for _, target := range [][]string{
		{"-o", bin + "/", "./cmd/perdure", "./cmd/containerd-shim-perdure-v2"},
		{"-o", filepath.Join(test, "perdure-crashpoints"), "-tags", "crashpoints", "./cmd/perdure"},
		{"-o", filepath.Join(test, "crashpoints") + "/", "-tags", "crashpoints", "./cmd/containerd-shim-perdure-v2"},
	} {
		args := []string{"build", "-trimpath"}
		if b.overlay != "" {
			args = append(args, "-overlay", b.overlay)
		}
		cmd := exec.CommandContext(ctx, "go", append(args, target...)...)
		cmd.Dir, cmd.Env = b.tree, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %w\n%s", errBuild, err, out)
		}
	}
	b.bin = bin
	return nil
}

// verdict reads the output of go test -json. A test that was running when the time was up is the one that has noticed.
func verdict(output []byte, passed bool, module, tree string) (result, error) {
	r := result{output: output}
	var fails, running []string
	ran := false
	lines := bufio.NewScanner(bytes.NewReader(output))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l struct {
			Action, Package, Test string
			Elapsed               float64 // seconds
		}
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue
		}
		name := catcher{where(l.Package, module, tree), l.Test}.String()
		switch l.Action {
		case "build-fail":
			return r, errBuild
		case "run":
			ran, running = true, append(running, name)
		case "pass", "skip", "fail":
			if l.Test == "" {
				r.took += time.Duration(l.Elapsed * float64(time.Second))
			}
			running = slices.DeleteFunc(running, func(r string) bool { return r == name })
			if l.Action == "fail" {
				fails = append(fails, name)
			}
		}
	}
	switch {
	case lines.Err() != nil:
		return r, lines.Err()
	case passed && !ran:
		return r, errors.New("there is no such test")
	case passed:
	case len(running) > 0: // the process has ended in it
		r.failed = running[len(running)-1]
	case len(fails) > 0:
		r.failed = fails[0]
	default:
		return r, errors.New("go test failed without a failed test")
	}
	return r, nil
}

// where is the directory within the tree of a package's import path.
func where(pkg, module, tree string) string {
	pkg = strings.TrimPrefix(strings.TrimPrefix(pkg, "perdure"), "/")
	if module != tree && !strings.HasPrefix(pkg, chaos) {
		pkg = chaos + "/" + pkg
	}
	return pkg
}

// reapStrays ends what a test has left behind: this process is their subreaper, so all of it is below it.
func reapStrays() {
	for {
		var killed bool
		for _, pid := range children(os.Getpid()) {
			killed = true
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil)
		}
		if !killed {
			return
		}
	}
}

func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
