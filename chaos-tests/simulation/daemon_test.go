//go:build crashpoints

package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/events"
	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/chaos-tests/checker"
	"perdure/store"
	service "perdure/task"
)

// publisher is containerd's side of events, for one worker.
type publisher struct{ *worker }

func (p publisher) Publish(_ context.Context, _ string, e store.Event) error {
	p.world.take(p.worker, "publish "+e.Topic)
	if p.world.faults.refuses() {
		return errors.New("containerd is away")
	}
	p.world.history.Events = append(p.world.history.Events, p.world.received(e))
	return nil
}

// received reads an event as a client does.
func (w *world) received(e store.Event) checker.Event {
	var m proto.Message
	name := strings.TrimPrefix(e.Topic, "/tasks/")
	switch name {
	case "create":
		m = &events.TaskCreate{}
	case "start":
		m = &events.TaskStart{}
	case "exec-added":
		m = &events.TaskExecAdded{}
	case "exec-started":
		m = &events.TaskExecStarted{}
	case "exit":
		m = &events.TaskExit{}
	case "delete":
		m = &events.TaskDelete{}
	case "oom":
		m = &events.TaskOOM{}
	case "paused":
		m = &events.TaskPaused{}
	case "resumed":
		m = &events.TaskResumed{}
	case "checkpointed":
		m = &events.TaskCheckpointed{}
	default:
		w.violation("an event of the unknown topic %s", e.Topic)
		return checker.Event{}
	}
	if err := proto.Unmarshal(e.Value, m); err != nil {
		w.violation("an event of topic %s cannot be read: %v", e.Topic, err)
	}
	got := checker.Event{At: w.now(), Name: name, Time: e.At, Raw: string(e.Value)}
	switch m := m.(type) {
	case interface{ GetExecID() string }:
		got.Exec = m.GetExecID()
	case *events.TaskExit:
		if m.ID != m.ContainerID {
			got.Exec = m.ID
		}
		got.Status, got.ExitedAt = m.ExitStatus, m.ExitedAt.AsTime()
	case *events.TaskDelete:
		got.Status, got.ExitedAt = m.ExitStatus, m.ExitedAt.AsTime()
	}
	if m, ok := m.(interface{ GetPid() uint32 }); ok {
		got.Pid = int(m.GetPid())
	}
	got.Container = m.(interface{ GetContainerID() string }).GetContainerID()
	got.Life = w.lives[got.Container]
	return got
}

// asked is a client's call.
type asked struct {
	call     checker.Call
	name     string
	answered bool
	resp     any
	err      error
}

// ask begins a call; its answer is recorded when it comes.
func (w *world) ask(op checker.Op, id, exec string, m method) *asked {
	a := &asked{name: strings.TrimSpace(fmt.Sprintf("%s %s %s", op, id, exec))}
	a.call = checker.Call{Target: checker.Target{Container: id, Life: w.lives[id], Exec: exec}, Began: w.now(), Op: op}
	w.asked = append(w.asked, a)
	w.target(a.call.Target)
	w.keeper.ask(a.name, op == checker.OpWait, m, func(resp any, err error) { w.answered(a, resp, err) })
	return a
}

func (w *world) answered(a *asked, resp any, err error) {
	a.answered, a.resp, a.err = true, resp, err
	c := &a.call
	c.Ended = w.now()
	if err != nil {
		st := status.Convert(errgrpc.ToGRPC(err))
		c.Code, c.Message = checker.Code(st.Code().String()), st.Message()
	}
	readAnswer(c, resp)
	w.note("answer to %s: %s %s", a.name, c.Code, c.Message)
	w.history.Calls = append(w.history.Calls, *c)
	switch c.Code {
	case checker.OK, checker.NotFound, checker.AlreadyExists, checker.FailedPrecondition:
	default:
		if !w.faults.any() {
			w.violation("%s is answered %s: %s", a.name, c.Code, c.Message)
		}
	}
	switch {
	case c.Op == checker.OpDelete && c.Exec == "" && c.Code == checker.OK:
		w.removeBundle(c.Container)
		w.gone[c.Container] = true
	case c.Op == checker.OpCreate && c.Code != checker.OK && c.Code != checker.AlreadyExists:
		w.removeBundle(c.Container)
	}
}

// removeBundle is what containerd does at once with the bundle of a task that is deleted.
func (w *world) removeBundle(id string) {
	if w.machine.mounts[w.bundle(id)] {
		w.violation("the rootfs of %s is still mounted when its bundle is removed", id)
	}
	if err := os.RemoveAll(w.bundle(id)); err != nil {
		w.violation("%v", err)
	}
	delete(w.machine.intents, id)
}

func (w *world) bundle(id string) string { return filepath.Join(w.dir, id) }

func (w *world) makeBundle(id string) {
	var spec specs.Spec
	spec.Linux = &specs.Linux{}
	if w.plan.Private {
		spec.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace}}
	}
	text, err := json.Marshal(spec)
	if err == nil {
		err = os.MkdirAll(w.bundle(id), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(w.bundle(id), "config.json"), text, 0o600)
	}
	if err != nil {
		w.violation("%v", err)
	}
}

// readAnswer takes what an answer says.
func readAnswer(c *checker.Call, resp any) {
	switch r := resp.(type) {
	case *api.CreateTaskResponse:
		c.Pid = int(r.Pid)
	case *api.StartResponse:
		c.Pid = int(r.Pid)
	case *api.ConnectResponse:
		c.Pid = int(r.TaskPid)
	case *api.StateResponse:
		c.State, c.Pid = states[r.Status], int(r.Pid)
		if c.State == checker.Stopped {
			c.Status, c.ExitedAt = r.ExitStatus, r.ExitedAt.AsTime()
		}
	case *api.WaitResponse:
		c.Status, c.ExitedAt = r.ExitStatus, r.ExitedAt.AsTime()
	case *api.DeleteResponse:
		c.Status, c.Pid = r.ExitStatus, int(r.Pid)
		if r.ExitedAt != nil {
			c.ExitedAt = r.ExitedAt.AsTime()
		}
	}
}

func (w *world) create(id string) *asked { return w.restore(id, "") }

// restore creates a container from an image, or a new one.
func (w *world) restore(id, image string) *asked {
	if w.lives[id] == 0 || w.gone[id] {
		w.lives[id]++
		w.gone[id] = false
	}
	w.makeBundle(id)
	r := &api.CreateTaskRequest{ID: id, Bundle: w.bundle(id), Checkpoint: image}
	return w.ask(checker.OpCreate, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Create(ctx, r))
	})
}

func (w *world) begin(id, exec string) *asked {
	return w.ask(checker.OpStart, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Start(ctx, &api.StartRequest{ID: id, ExecID: exec}))
	})
}

// some keeps a nil pointer from being an answer.
func some[T any](resp *T, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (w *world) add1(id, exec string) *asked {
	spec, _ := json.Marshal(specs.Process{Args: []string{exec}})
	return w.ask(checker.OpExec, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Exec(ctx, &api.ExecProcessRequest{ID: id, ExecID: exec, Spec: &anypb.Any{Value: spec}}))
	})
}

func execOf(process []byte) string {
	var spec specs.Process
	_ = json.Unmarshal(process, &spec)
	return spec.Args[0]
}

func (w *world) kill(id, exec string, signal int, all bool) *asked {
	a := w.ask(checker.OpKill, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Kill(ctx, &api.KillRequest{ID: id, ExecID: exec, Signal: uint32(signal), All: all}))
	})
	a.call.Signal = signal
	return a
}

func (w *world) pause(id string) *asked {
	return w.ask(checker.OpPause, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Pause(ctx, &api.PauseRequest{ID: id}))
	})
}

func (w *world) resume(id string) *asked {
	return w.ask(checker.OpResume, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Resume(ctx, &api.ResumeRequest{ID: id}))
	})
}

func (w *world) update(id string) *asked {
	return w.ask(checker.OpUpdate, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Update(ctx, &api.UpdateTaskRequest{ID: id, Resources: &anypb.Any{Value: []byte("{}")}}))
	})
}

func (w *world) checkpoint(id, path string, exit bool) *asked {
	value, _ := proto.Marshal(&options.CheckpointOptions{Exit: exit})
	given := &anypb.Any{TypeUrl: "containerd.runc.v1.CheckpointOptions", Value: value}
	return w.ask(checker.OpCheckpoint, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Checkpoint(ctx, &api.CheckpointTaskRequest{ID: id, Path: path, Options: given}))
	})
}

func (w *world) closeIO(id, exec string) *asked {
	return w.ask(checker.OpCloseIO, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.CloseIO(ctx, &api.CloseIORequest{ID: id, ExecID: exec, Stdin: true}))
	})
}

func (w *world) del(id, exec string) *asked {
	return w.ask(checker.OpDelete, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Delete(ctx, &api.DeleteRequest{ID: id, ExecID: exec}))
	})
}

func (w *world) state(id, exec string) *asked {
	return w.ask(checker.OpState, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.State(ctx, &api.StateRequest{ID: id, ExecID: exec}))
	})
}

func (w *world) wait(id, exec string) *asked {
	return w.ask(checker.OpWait, id, exec, func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Wait(ctx, &api.WaitRequest{ID: id, ExecID: exec}))
	})
}

func (w *world) pids(id string) *asked {
	return w.ask(checker.OpPids, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Pids(ctx, &api.PidsRequest{ID: id}))
	})
}

func (w *world) connect(id string) *asked {
	return w.ask(checker.OpConnect, id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Connect(ctx, &api.ConnectRequest{ID: id}))
	})
}

func (w *world) shutdown(id string) *asked {
	return w.ask("shutdown", id, "", func(ctx context.Context, s *service.Service) (any, error) {
		return some(s.Shutdown(ctx, &api.ShutdownRequest{ID: id}))
	})
}

// states are the Task API's words.
var states = map[task.Status]string{
	task.Status_CREATED: checker.Created, task.Status_RUNNING: checker.Running, task.Status_PAUSING: checker.Pausing,
	task.Status_PAUSED: checker.Paused, task.Status_STOPPED: checker.Stopped,
}
