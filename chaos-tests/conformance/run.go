package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"perdure/chaos-tests/harness"
)

// perdure is the runtime that is measured.
const perdure = "io.containerd.perdure.v2"

// part is one pass of the suite.
type part struct {
	name    string
	runtime string        // TEST_RUNTIME
	kill    time.Duration // how often workers are killed; 0: never

	results map[string]result // by test, subtests included
	left    []string          // what was left behind
	kills   int
	took    time.Duration
}

// run is the whole command, inside the namespaces.
func run(o options, dir string) (int, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m, err := startMirror(ctx, filepath.Join(dir, "registry.pem"))
	if err != nil {
		return 0, err
	}
	s := suite{dir: dir, limit: o.limit, env: m.env()}
	if err := s.look(o); err != nil {
		return 0, err
	}
	fmt.Printf("%d tests of %s, %s\n", len(s.tests), s.version, s.runc)
	for _, p := range o.parts {
		if err := s.pass(ctx, p, o.parts[0]); err != nil {
			return 0, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if o.document != "" {
		if err := document(o.document, o.parts[0], s); err != nil {
			return 0, err
		}
	}
	if !verdict(os.Stdout, s.tests, o.parts) {
		fmt.Printf("what the tests printed: %s\n", o.logs)
		return 1, nil
	}
	return 0, nil
}

func newPart(name string, kill time.Duration) (*part, error) {
	switch name {
	case "stock":
		return &part{name: name, runtime: harness.Stock}, nil
	case "perdure":
		return &part{name: name, runtime: perdure}, nil
	case "killed":
		if kill <= 0 {
			return nil, errors.New("workers cannot be killed every " + kill.String())
		}
		return &part{name: name, runtime: perdure, kill: kill}, nil
	}
	return nil, errors.New("there is no part " + name)
}

// suite is the compiled tests and what they are run with.
type suite struct {
	dir     string // the run's
	env     []string
	limit   time.Duration
	tests   []string
	version string // of containerd
	runc    string
}

// look finds out what there is to run.
func (s *suite) look(o options) error {
	list := s.command("-test.short", "-test.list", "^Test")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list the tests: %w", err)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(name, "Test") && o.run.MatchString(name) {
			s.tests = append(s.tests, name)
		}
	}
	if len(s.tests) == 0 {
		return fmt.Errorf("no test is named %s", o.run)
	}
	if s.version, err = s.firstLine("containerd", "--version"); err != nil {
		return err
	}
	s.runc, err = s.firstLine("runc", "--version")
	return err
}

func (s *suite) firstLine(name string, args ...string) (string, error) {
	for dir := range strings.SplitSeq(path(s.dir), ":") {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue
		}
		out, err := exec.Command(file, args...).Output()
		line, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimSpace(line), err
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

// command is the test binary with the suite's environment and no other
// variables of this project.
func (s *suite) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.dir, "suite", "client.test"), args...)
	cmd.Dir = filepath.Join(s.dir, "suite") // for testdata/
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PERDURE_") || strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "TMPDIR=")
	})
	cmd.Env = append(cmd.Env, "PATH="+path(s.dir), "TMPDIR="+filepath.Join(s.dir, "tmp"))
	cmd.Env = append(cmd.Env, s.env...)
	return cmd
}

// pass runs the tests once, and leaves the place as it was before.
func (s *suite) pass(ctx context.Context, p, model *part) (err error) {
	start := time.Now()
	before, err := look()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "logs", p.name+".log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	p.results = map[string]result{}
	b := batches{suite: s, part: p, log: log, before: before}
	err = b.run(ctx, model)
	p.took = time.Since(start)
	progress("")
	fmt.Printf("%s: %v\n", p.name, p.took.Round(time.Second))
	return err
}

// progress shows what is going on where somebody looks on.
func progress(text string) {
	if info, err := os.Stdout.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Print("\r\033[K", text)
	}
}
