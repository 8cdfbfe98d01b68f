package task

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/containerd/errdefs/pkg/errgrpc"

	"perdure/internal/crash"
	"perdure/store"
	"perdure/store/lifecycle"
)

var update = flag.Bool("update", false, "write the generated table into docs/task-api.md")

const document = "../docs/task-api.md"

// operations are the methods that change something, and what they are to the lifecycle.
var operations = map[string]lifecycle.Op{
	"Create": lifecycle.OpCreate, "Start": lifecycle.OpStart, "Exec": lifecycle.OpExec, "Kill": lifecycle.OpKill,
	"Pause": lifecycle.OpPause, "Resume": lifecycle.OpResume, "Update": lifecycle.OpUpdate, "Checkpoint": lifecycle.OpCheckpoint,
	"CloseIO": lifecycle.OpCloseIO, "Delete": lifecycle.OpDelete,
}

// reads are the methods that journal nothing: what they answer of a process that is not there, created,
// running, paused and stopped. chaos-tests/api holds the shim to it.
var reads = map[string]map[lifecycle.Kind][]string{
	"State":     {lifecycle.Init: {"NotFound", "ok", "ok", "ok", "ok"}, lifecycle.Exec: {"NotFound", "ok", "ok", "", "ok"}},
	"Wait":      {lifecycle.Init: {"NotFound", "ok", "ok", "ok", "ok"}, lifecycle.Exec: {"NotFound", "ok", "ok", "", "ok"}},
	"Pids":      {lifecycle.Init: {"NotFound", "ok", "ok", "ok", "ok"}},
	"Stats":     {lifecycle.Init: {"NotFound", "ok", "ok", "ok", "ok"}},
	"Connect":   {lifecycle.Init: {"ok", "ok", "ok", "ok", "ok"}},
	"Shutdown":  {lifecycle.Init: {"ok", "ok", "ok", "ok", "ok"}},
	"ResizePty": {lifecycle.Init: {"NotFound", "ok", "ok", "ok", "FailedPrecondition"}, lifecycle.Exec: {"NotFound", "FailedPrecondition", "ok", "", "FailedPrecondition"}},
}

var states = []lifecycle.State{lifecycle.None, lifecycle.Created, lifecycle.Running, lifecycle.Paused, lifecycle.Stopped}

// TestDocument keeps the table in docs/task-api.md equal to the code, and complete.
func TestDocument(t *testing.T) {
	described := slices.Sorted(maps.Keys(operations))
	described = slices.Sorted(slices.Values(slices.AppendSeq(described, maps.Keys(reads))))
	if served := slices.Sorted(maps.Keys((&Service{}).methods())); !slices.Equal(served, described) {
		t.Fatalf("served are %v, described %v", served, described)
	}
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	marked := regexp.MustCompile(`(?s)(-update -->\n).*?(<!-- end -->)`)
	want := marked.ReplaceAllString(string(text), "${1}"+table(t)+"${2}")
	switch {
	case want == string(text):
	case !*update:
		t.Fatalf("%s differs from the code: run go test ./task -run TestDocument -update", document)
	default:
		if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func table(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| call | process | not there | created | running | paused | stopped | journaled | event |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys((&Service{}).methods())) {
		for _, kind := range []lifecycle.Kind{lifecycle.Init, lifecycle.Exec} {
			if cells, ok := reads[name][kind]; ok {
				fmt.Fprintf(&b, "| %s | %s | %s | - | - |\n", name, kind, strings.Join(cells, " | "))
			}
			if op, ok := operations[name]; ok && has(kind, op) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, kind, strings.Join(commandCells(kind, op), " | "), journaled(kind, op), told(t, kind, op))
			}
		}
	}
	return b.String()
}

// has reports whether any state of a process of the kind allows an operation.
func has(kind lifecycle.Kind, op lifecycle.Op) bool {
	return slices.ContainsFunc(states, func(s lifecycle.State) bool {
		_, err := lifecycle.Next(kind, s, op)
		return err == nil && !(kind == lifecycle.Init && op == lifecycle.OpExec)
	})
}

func commandCells(kind lifecycle.Kind, op lifecycle.Op) []string {
	var cells []string
	for _, state := range states {
		to, err := lifecycle.Next(kind, state, op)
		switch {
		case kind == lifecycle.Exec && state == lifecycle.Paused:
			cells = append(cells, "")
		case err != nil:
			cells = append(cells, codeOf(refusal("c", "", err)))
		case to == state:
			cells = append(cells, "ok")
		default:
			cells = append(cells, "→ "+string(to))
		}
	}
	return cells
}

func codeOf(err error) string { return status.Code(errgrpc.ToGRPC(err)).String() }

// journaled reads off the crash points which records an operation writes: each has one after it, and the tests
// of chaos-tests/crash reach them all.
func journaled(kind lifecycle.Kind, op lifecycle.Op) string {
	name := string(op)
	if kind == lifecycle.Exec {
		name = "exec-" + name
	}
	var records []string
	for _, r := range []struct {
		position crash.Position
		record   string
	}{{crash.AfterIntent, "intent"}, {crash.AfterLaunched, "launched"}, {crash.AfterOutcome, "outcome"}} {
		if slices.Contains(crash.All(), name+"."+string(r.position)) {
			records = append(records, r.record)
		}
	}
	return strings.Join(records, ", ")
}

// told asks the code which events the outcome of an operation has.
func told(t *testing.T, kind lifecycle.Kind, op lifecycle.Op) string {
	journal, err := store.Create(t.TempDir(), store.Meta{BootID: "b", Namespace: "n", ID: "c", Instance: "1"})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	c := &container{id: "c", svc: New(Config{Now: time.Now}), journal: journal}
	c.view.Store(&view{Container: journal.State()})
	exec := ""
	if kind == lifecycle.Exec {
		exec = "e"
	}
	_, events, err := c.tell(lifecycle.Record{Op: op, Exec: exec, Phase: lifecycle.Done, Process: &lifecycle.Process{Pid: 1, Start: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var topics []string
	for _, e := range events {
		topics = append(topics, e.Topic)
	}
	return strings.Join(append(topics, "-")[:max(1, len(topics))], ", ")
}
