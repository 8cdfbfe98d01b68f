package down

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
)

// scene is containers with processes that write and end when they are told to.
type scene struct {
	t          *testing.T
	h          *harness.Harness
	gates      *harness.Gates
	containers []*harness.Container // first of a pod before its others
	execs      []*process           // in the order in which they end
	inits      []*process           // those that end while containerd is away
	survivor   *process             // the init that does not
}

// process is an init or an exec that ends while containerd is away.
type process struct {
	name string // of its gate
	c    *harness.Container
	e    *harness.Exec // nil: the init
	out  *harness.Streams
	kind kind
	code uint32
	pid  int

	opened, ended time.Time // it ended between the two
}

// kind is what differs in how output gets to the client.
type kind struct {
	terminal bool
	detached bool // the client is away as well: it is part of containerd, as CRI is
}

var kinds = []kind{{false, false}, {true, false}, {false, true}, {true, true}}

// lines is how many lines a process writes: more than any buffer holds with a
// reader, and what surely fits without: 40,000 bytes in a pipe, 2,400 in a
// terminal.
func (k kind) lines() int {
	switch {
	case k.detached && k.terminal:
		return 500
	case k.detached:
		return 8000
	}
	return 20000
}

// output is what arrives at the client.
func (k kind) output() string {
	var b strings.Builder
	b.WriteString("ready\n")
	for i := 1; i <= k.lines(); i++ {
		fmt.Fprintf(&b, "%d\n", i)
	}
	if k.terminal {
		return strings.ReplaceAll(b.String(), "\n", "\r\n")
	}
	return b.String()
}

// pod is the group of the containers in it, and the one whose init survives.
const pod = "pod"

// begin starts everything: containers with a shim of their own, of each kind,
// and a pod in which one shares the pid namespace of the first.
func (s *scene) begin(ctx context.Context) {
	var names []string
	for _, id := range []string{"single0", "single1", "single2", "single3", pod, "member", "shared"} {
		names = append(names, id)
		for i := range kinds {
			names = append(names, execName(id, i))
		}
	}
	gates, err := s.h.NewGates(names...)
	harness.Check(s.t, err)
	s.gates = gates
	for i, k := range kinds {
		s.inits = append(s.inits, s.run(ctx, fmt.Sprintf("single%d", i), k, harness.Config{}))
	}
	s.survivor = s.run(ctx, pod, kind{detached: true}, harness.Config{})
	s.inits = append(s.inits,
		s.run(ctx, "member", kind{terminal: true, detached: true}, harness.Config{Pod: pod}),
		s.run(ctx, "shared", kind{detached: true}, harness.Config{Pod: pod, SharePID: s.survivor.pid}))
	for _, p := range append(append(s.execs, s.inits...), s.survivor) {
		harness.Check(s.t, p.out.Stdout.Await(eventLimit, "ready"))
		if p.kind.detached {
			harness.Check(s.t, p.out.Detach())
		}
	}
	for _, c := range s.containers {
		// What containerd has taken but not passed on would die with it.
		_, err := s.h.Events.Await(eventLimit, c.ID, "exec-started "+execName(c.ID, len(kinds)-1))
		harness.Check(s.t, err)
	}
}

func execName(container string, kind int) string { return fmt.Sprintf("%s-e%d", container, kind) }

// run starts a container and one exec of each kind in it.
func (s *scene) run(ctx context.Context, id string, k kind, cfg harness.Config) *process {
	s.t.Helper()
	init := &process{name: id, kind: k, code: uint32(len(s.containers) + 1)}
	cfg.Args, cfg.Terminal = s.program(init), k.terminal
	cfg.Mounts = append(cfg.Mounts, s.gates.Mount())
	c, err := s.h.Run(ctx, id, cfg)
	harness.Check(s.t, err)
	init.c, init.out, init.pid = c, &c.Streams, int(c.Task.Pid())
	s.containers = append(s.containers, c)
	for i, k := range kinds {
		p := &process{name: execName(id, i), c: c, kind: k, code: uint32(100 + len(s.execs))}
		p.e, err = c.Exec(ctx, harness.ExecConfig{ID: p.name, Args: s.program(p), Terminal: k.terminal})
		harness.Check(s.t, err)
		p.out, p.pid = &p.e.Streams, int(p.e.Pid())
		s.execs = append(s.execs, p)
	}
	return init
}

// program says that it is ready, and writes and ends once its gate is open.
func (s *scene) program(p *process) []string {
	return harness.Shell("echo ready; " + s.gates.Await(p.name) + fmt.Sprintf("seq %d; exit %d", p.kind.lines(), p.code))
}

// end has processes end, one after the other.
func (s *scene) end(ctx context.Context, all []*process) {
	s.t.Helper()
	for _, p := range all {
		p.opened = time.Now()
		harness.Check(s.t, s.gates.Open(p.name))
		if err := harness.AwaitEnd(ctx, p.pid); err != nil {
			s.t.Fatalf("%s: %v", p.name, err)
		}
		p.ended = time.Now()
	}
}
