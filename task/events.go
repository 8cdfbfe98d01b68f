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
	topicOOM         = "/tasks/oom"
	topicPaused      = "/tasks/paused"
	topicResumed     = "/tasks/resumed"
	topicCheckpoint  = "/tasks/checkpointed"
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
		pid := pidOf(r.Process)
		body = pidAnswer{pid}
		told = append(told, event(topicCreate, now, c.createEvent(pid)))
	case lifecycle.OpStart:
		pid := pidOf(r.Process) // 0 for an init that its create has brought up
		if r.Exec == "" {
			pid = max(pid, uint32(c.state().Init.Process.Pid))
			told = append(told, event(topicStart, now, &events.TaskStart{ContainerID: c.id, Pid: pid}))
		} else {
			told = append(told, event(topicExecStarted, now, &events.TaskExecStarted{ContainerID: c.id, ExecID: r.Exec, Pid: pid}))
		}
		body = pidAnswer{pid}
	case lifecycle.OpPause:
		told = append(told, event(topicPaused, now, &events.TaskPaused{ContainerID: c.id}))
	case lifecycle.OpResume:
		told = append(told, event(topicResumed, now, &events.TaskResumed{ContainerID: c.id}))
	case lifecycle.OpCheckpoint:
		told = append(told, event(topicCheckpoint, now, &events.TaskCheckpointed{ContainerID: c.id, Checkpoint: c.checkpointPath(r)}))
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

// pidOf is the pid that an outcome brings, 0 if none.
func pidOf(p *lifecycle.Process) uint32 {
	if p == nil {
		return 0
	}
	return uint32(p.Pid)
}

func (c *container) createEvent(pid uint32) *events.TaskCreate {
	e := &events.TaskCreate{
		ContainerID: c.id, Bundle: c.journal.Meta().Bundle, Pid: pid,
		IO: &events.TaskIO{
			Stdin: c.params.Stdio.Stdin, Stdout: c.params.Stdio.Stdout, Stderr: c.params.Stdio.Stderr, Terminal: c.params.Stdio.Terminal,
		},
	}
	if c.restores() {
		e.Checkpoint = c.params.Image.Path
	}
	for _, m := range c.params.Rootfs {
		e.Rootfs = append(e.Rootfs, &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return e
}

// exitEvent tells the end of a process. The id of an init's exit event is the
// container's (dockerd and containerd's client tell them apart by it).
func exitEvent(container, exec string, p lifecycle.ProcessState) store.Event {
	id := exec
	if exec == "" {
		id = container
	}
	return event(topicExit, p.Exit.At, &events.TaskExit{
		ContainerID: container, ID: id, Pid: uint32(p.Process.Pid), ExitStatus: p.Exit.Status, ExitedAt: timestamppb.New(p.Exit.At),
	})
}
