package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
)

// suite is the compiled tests and what they are run with. It is the part of a
// job that all lanes have in common, and travels to them as JSON.
type suite struct {
	Dirs  map[string]string // directories with binaries, by the name they get in the lanes
	Env   []string
	Limit time.Duration // for each test
	Logs  string

	tests   []string
	version string // of containerd
	runc    string
}

// conduct is the whole command, outside the namespaces.
func conduct(o options) (code int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !supported() {
		return 0, fmt.Errorf("the images are not made for %s", goruntime.GOARCH)
	}
	lock, err := lock(o.suite)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	dir, err := os.MkdirTemp("/tmp", "pc-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := startMirror(ctx, filepath.Join(dir, "registry.pem"))
	if err != nil {
		return 0, err
	}
	s, err := newSuite(o, m)
	if err != nil {
		return 0, err
	}
	fmt.Printf("%d tests of %s, %s\n", len(s.tests), s.version, s.runc)
	for _, p := range o.parts {
		if err := s.pass(ctx, p, o.parts[0], dir); err != nil {
			return 0, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return s.conclude(o)
}

func (s *suite) conclude(o options) (int, error) {
	if o.document != "" {
		if err := document(o.document, o.parts[0], s); err != nil {
			return 0, err
		}
	}
	if !verdict(os.Stdout, s.tests, o.parts) {
		fmt.Printf("what the tests printed is in %s\n", s.Logs)
		return 1, nil
	}
	return 0, nil
}

// lock keeps a second run out: its containers would have the same cgroups.
func lock(suite string) (*os.File, error) {
	f, err := os.Open(suite)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another run is under way with %s: %w", suite, err), f.Close())
	}
	return f, nil
}

func newSuite(o options, m *mirror) (*suite, error) {
	bin, err := daemon.Bin()
	if err != nil {
		return nil, err
	}
	peers, err := daemon.Peers()
	if err != nil {
		return nil, err
	}
	logs, err := filepath.Abs(o.logs)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	s := &suite{Env: m.env(), Limit: o.limit, Logs: logs}
	s.Dirs = map[string]string{"perdure": bin, "peers": peers, "suite": o.suite}
	if o.runc != "" {
		s.Dirs["runc"] = o.runc
	}
	out, err := exec.Command(filepath.Join(o.suite, "client.test"), "-test.short", "-test.list", "^Test").Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") && o.run.MatchString(name) {
			s.tests = append(s.tests, name)
		}
	}
	if len(s.tests) == 0 {
		return nil, fmt.Errorf("no test is named %s", o.run)
	}
	if s.version, err = firstLine(filepath.Join(peers, "containerd")); err != nil {
		return nil, err
	}
	s.runc, err = firstLine(filepath.Join(o.runc, "runc"))
	return s, err
}

// firstLine is what a program says its version is.
func firstLine(program string) (string, error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), nil
}

// pass runs the tests once, in lanes beside each other, and removes their
// cgroups.
func (s *suite) pass(ctx context.Context, p, model *part, dir string) error {
	fmt.Printf("%s ...", p.name)
	start := time.Now()
	before := cgroups()
	jobs := s.jobs(p, model, dir)
	reports, errs := make([]report, len(jobs)), make([]error, len(jobs))
	var lanes sync.WaitGroup
	for i, j := range jobs {
		lanes.Go(func() { reports[i], errs[i] = j.run(ctx) })
	}
	lanes.Wait()
	p.Results = map[string]result{}
	for _, r := range reports {
		maps.Copy(p.Results, r.Results)
		p.Left = append(p.Left, r.Left...)
		p.Kills += r.Kills
	}
	p.took = time.Since(start)
	fmt.Printf(" %v\n", p.took.Round(time.Second))
	return errors.Join(append(errs, removeCgroups(before))...)
}
