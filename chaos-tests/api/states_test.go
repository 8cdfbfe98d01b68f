// Package api holds the shim to docs/task-api.md: each call in each state, calls that outlive their client's deadline,
// and what pausing, updating and killing do to a container.
package api

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

const (
	limit     = 20 * time.Second
	testLimit = 5 * time.Minute
)

// row is one line of the document: what a call answers in each state.
type row struct {
	call, process string
	answers       map[string]string // by state
}

// documented reads the table of docs/task-api.md.
func documented(t *testing.T) []row {
	t.Helper()
	tree, err := daemon.Tree()
	harness.Check(t, err)
	text, err := os.ReadFile(filepath.Join(tree, "docs", "task-api.md"))
	harness.Check(t, err)
	var states []string
	var rows []row
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case len(cells) != 9 || strings.HasPrefix(cells[0], "---"):
		case states == nil:
			states = cells[2:7]
		default:
			r := row{cells[0], cells[1], map[string]string{}}
			for i, state := range states {
				r.answers[state] = cells[2+i]
			}
			rows = append(rows, r)
		}
	}
	if len(rows) < 20 {
		t.Fatalf("docs/task-api.md has a table of %d rows", len(rows))
	}
	return rows
}

// TestEveryCallInEveryState makes each call against a process in each state, and compares the answer with the
// document. A call that changes something uses its container up; the others share one for each state.
func TestEveryCallInEveryState(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	s := &stage{h: h, shared: map[string]*harness.Container{}}
	var err error
	s.anchor, err = h.Run(ctx, "anchor", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	for _, r := range documented(t) {
		if r.call == "Create" {
			delete(r.answers, "not there") // that is how every container here came to be
		}
		for _, state := range slices.Sorted(maps.Keys(r.answers)) {
			if want := r.answers[state]; want != "" {
				t.Run(strings.Join([]string{r.call, r.process, strings.ReplaceAll(state, " ", "-")}, "/"), func(t *testing.T) {
					s.check(ctx, t, r, state, want)
				})
			}
		}
	}
}

// stage makes processes in the states of the document, in one pod, whose shim so stays.
type stage struct {
	h      *harness.Harness
	anchor *harness.Container
	shared map[string]*harness.Container
	count  int
}

// changing are the calls that are "ok" and still leave another container behind than they have found.
var changing = []string{"Wait", "Kill", "Checkpoint"}

func (s *stage) check(ctx context.Context, t *testing.T, r row, state, want string) {
	ok := want == "ok" || strings.HasPrefix(want, "→")
	key := r.process + " " + state
	c := s.shared[key]
	if once := strings.HasPrefix(want, "→") || ok && slices.Contains(changing, r.call); once || c == nil {
		s.count++
		c = s.in(ctx, t, fmt.Sprintf("c%d", s.count), r.process, state)
		if !once {
			s.shared[key] = c
		} else {
			defer func() { harness.Check(t, c.Remove(ctx)) }()
		}
	}
	err := s.call(ctx, t, c, r, state)
	got := "ok"
	if err != nil {
		got = status.Code(errgrpc.ToGRPC(err)).String()
	}
	if ok != (err == nil) || !ok && got != want {
		t.Errorf("answers %s (%v), the document says %q", got, err, want)
	}
}

// in brings a container, or the exec "e" of one, into a state.
func (s *stage) in(ctx context.Context, t *testing.T, id, process, state string) *harness.Container {
	t.Helper()
	if process == "init" && state == "not there" {
		return &harness.Container{ID: "nobody"}
	}
	c, err := s.h.Create(ctx, id, harness.Config{Args: harness.Sleep(), Pod: s.anchor.ID, Terminal: true})
	harness.Check(t, err)
	if process == "exec" {
		harness.Check(t, c.Task.Start(ctx))
		s.exec(ctx, t, c, state)
		return c
	}
	if state != "created" {
		harness.Check(t, c.Task.Start(ctx))
	}
	switch state {
	case "paused":
		harness.Check(t, c.Task.Pause(ctx))
	case "stopped":
		harness.Check(t, c.Task.Kill(ctx, 9))
		_, err := c.Wait(ctx)
		harness.Check(t, err)
	}
	return c
}

func (s *stage) exec(ctx context.Context, t *testing.T, c *harness.Container, state string) {
	t.Helper()
	if state == "not there" {
		return
	}
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e", Args: harness.Sleep(), Terminal: true})
	harness.Check(t, err)
	if state == "created" {
		return
	}
	harness.Check(t, e.Start(ctx))
	if state == "stopped" {
		harness.Check(t, e.Kill(ctx, 9))
		_, err := e.AwaitExit(ctx)
		harness.Check(t, err)
	}
}

// call makes one call. A Wait for a process that lives is answered by its end.
func (s *stage) call(ctx context.Context, t *testing.T, c *harness.Container, r row, state string) error {
	t.Helper()
	if r.call == "Wait" && (state == "created" || state == "running" || state == "paused") {
		return s.waitThenKill(ctx, t, c, r.process)
	}
	id, exec := c.ID, ""
	if r.process == "exec" {
		exec = "e"
	}
	err := s.anchor.Call(ctx, r.call, s.request(t, r.call, id, exec), &emptypb.Empty{})
	if r.call == "Checkpoint" && r.answers[state] == "ok" && err != nil && strings.Contains(err.Error(), "runtime checkpoint failed") {
		return nil // it was allowed, and CRIU is not there or cannot; package checkpoint is about those that succeed
	}
	return err
}

func (s *stage) waitThenKill(ctx context.Context, t *testing.T, c *harness.Container, process string) error {
	t.Helper()
	exec := ""
	if process == "exec" {
		exec = "e"
	}
	resp := &api.WaitResponse{}
	waited := make(chan error, 1)
	go func() { waited <- s.anchor.Call(ctx, "Wait", &api.WaitRequest{ID: c.ID, ExecID: exec}, resp) }()
	if exec == "e" {
		_ = s.anchor.Call(ctx, "Start", &api.StartRequest{ID: c.ID, ExecID: exec}, &emptypb.Empty{}) // where it is not yet
	}
	harness.Check(t, s.anchor.Call(ctx, "Kill", &api.KillRequest{ID: c.ID, ExecID: exec, Signal: 9}, &emptypb.Empty{}))
	err := <-waited
	if err == nil && resp.ExitStatus != 137 {
		t.Errorf("it ended with %d", resp.ExitStatus)
	}
	return err
}

func (s *stage) request(t *testing.T, call, id, exec string) proto.Message {
	t.Helper()
	switch call {
	case "State":
		return &api.StateRequest{ID: id, ExecID: exec}
	case "Wait":
		return &api.WaitRequest{ID: id, ExecID: exec}
	case "Pids":
		return &api.PidsRequest{ID: id}
	case "Stats":
		return &api.StatsRequest{ID: id}
	case "Connect":
		return &api.ConnectRequest{ID: id}
	case "Shutdown":
		return &api.ShutdownRequest{ID: id}
	case "ResizePty":
		return &api.ResizePtyRequest{ID: id, ExecID: exec, Width: 100, Height: 40}
	case "Create":
		return &api.CreateTaskRequest{ID: id, Bundle: s.h.Bundle(s.h.Namespace, id)}
	case "Start":
		return &api.StartRequest{ID: id, ExecID: exec}
	case "Exec":
		return &api.ExecProcessRequest{ID: id, ExecID: exec, Spec: anyOf(t, &specs.Process{Args: harness.Sleep(), Cwd: "/"})}
	case "Kill":
		return &api.KillRequest{ID: id, ExecID: exec, Signal: 9}
	case "Pause":
		return &api.PauseRequest{ID: id}
	case "Resume":
		return &api.ResumeRequest{ID: id}
	case "Update":
		pids := int64(100)
		return &api.UpdateTaskRequest{ID: id, Resources: anyOf(t, &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}})}
	case "Checkpoint":
		return &api.CheckpointTaskRequest{ID: id, Path: t.TempDir()}
	case "CloseIO":
		return &api.CloseIORequest{ID: id, ExecID: exec, Stdin: true}
	case "Delete":
		return &api.DeleteRequest{ID: id, ExecID: exec}
	}
	t.Fatalf("docs/task-api.md names a call %q that this test does not know", call)
	return nil
}

func anyOf(t *testing.T, v any) *anypb.Any {
	t.Helper()
	any, err := typeurl.MarshalAnyToProto(v)
	harness.Check(t, err)
	return any
}

func expect(ctx context.Context, t *testing.T, c *harness.Container, want client.ProcessStatus) {
	t.Helper()
	st, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if st.Status != want {
		t.Errorf("the container is %s, want %s", st.Status, want)
	}
}
