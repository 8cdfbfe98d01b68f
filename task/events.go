package task

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/store"
	"perdure/store/lifecycle"
)

// The topics of containerd's task events (containerd, core/runtime/events.go).
const (
	topicCreate      = "/tasks/create"
	topicStart       = "/tasks/start"
	topicExecAdded   = "/tasks/exec-added"
	topicExecStarted = "/tasks/exec-started"
	topicExit        = "/tasks/exit"
	topicDelete      = "/tasks/delete"
)

// event freezes a message as the bytes that will be sent, now and in every
// repetition.
func event(topic string, at time.Time, m proto.Message) store.Event {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("marshal %T: %v", m, err)) // only invalid UTF-8 can do that, and ids are checked
	}
	return store.Event{Topic: topic, At: at, TypeURL: string(m.ProtoReflect().Descriptor().FullName()), Value: value}
}

// tell makes the answer and the events of an outcome. It is pure but for the
// clock: the same outcome tells the same story in any worker.
func (c *container) tell(r lifecycle.Record) (answer json.RawMessage, told []store.Event, err error) {
	now := c.svc.Now()
	var body any
	switch r.Op {
	case lifecycle.OpCreate:
		body = pidAnswer{uint32(r.Process.Pid)}
		told = append(told, event(topicCreate, now, c.createEvent(r.Process.Pid)))
	case lifecycle.OpStart:
		pid := c.state().Init.Process.Pid
		if r.Exec == "" {
			told = append(told, event(topicStart, now, &events.TaskStart{ContainerID: c.id, Pid: uint32(pid)}))
		} else {
			pid = r.Process.Pid
			told = append(told, event(topicExecStarted, now, &events.TaskExecStarted{ContainerID: c.id, ExecID: r.Exec, Pid: uint32(pid)}))
		}
		body = pidAnswer{uint32(pid)}
	case lifecycle.OpExec:
		told = append(told, event(topicExecAdded, now, &events.TaskExecAdded{ContainerID: c.id, ExecID: r.Exec}))
	case lifecycle.OpDelete:
		deleted := c.deleted(r.Exec)
		if r.Exec == "" {
			told = append(told, event(topicDelete, now, &events.TaskDelete{
				ContainerID: c.id, Pid: deleted.Pid, ExitStatus: deleted.Status, ExitedAt: timestamppb.New(deleted.At),
			}))
		}
		body = deleted
	}
	if body == nil {
		return nil, told, nil
	}
	answer, err = json.Marshal(body)
	return answer, told, err
}

func (c *container) createEvent(pid int) *events.TaskCreate {
	e := &events.TaskCreate{
		ContainerID: c.id, Bundle: c.journal.Meta().Bundle, Pid: uint32(pid),
		IO: &events.TaskIO{
			Stdin: c.params.Stdio.Stdin, Stdout: c.params.Stdio.Stdout, Stderr: c.params.Stdio.Stderr, Terminal: c.params.Stdio.Terminal,
		},
	}
	for _, m := range c.params.Rootfs {
		e.Rootfs = append(e.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return e
}

// exitEvent tells the end of a process. The id of an init's exit event is the
// container's (dockerd and containerd's client tell them apart by it).
func (c *container) exitEvent(exec string, p lifecycle.ProcessState) store.Event {
	id := exec
	if exec == "" {
		id = c.id
	}
	return event(topicExit, p.Exit.At, &events.TaskExit{
		ContainerID: c.id, ID: id, Pid: uint32(p.Process.Pid), ExitStatus: p.Exit.Status, ExitedAt: timestamppb.New(p.Exit.At),
	})
}
