package harness

import (
	"fmt"
	"strings"
	"time"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/core/events"
	"github.com/containerd/typeurl/v2"
)

// Event is one event of a task, as containerd passed it on.
type Event struct {
	Name      string // create, start, exec-added, exec-started, exit, delete, paused, resumed, oom
	Container string
	Exec      string // empty for the init process
	Pid       uint32
	Status    uint32    // exit and delete
	ExitedAt  time.Time // exit and delete
	Time      time.Time // set by the shim
	payload   string
}

// String is the name, and the exec where it is about one: "exec-added e1".
func (e Event) String() string { return strings.TrimSpace(e.Name + " " + e.Exec) }

// Payload is the event as it was sent, byte for byte, without the envelope's time.
func (e Event) Payload() string { return e.payload }

// WithPayload is the event with another payload, for tests of those who look at it.
func (e Event) WithPayload(payload string) Event {
	e.payload = payload
	return e
}

// decode makes an Event out of containerd's form.
func decode(envelope *events.Envelope) (Event, error) {
	decoded, err := typeurl.UnmarshalAny(envelope.Event)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", envelope.Topic, err)
	}
	e := Event{
		Name:    strings.TrimPrefix(envelope.Topic, "/tasks/"),
		Time:    envelope.Timestamp,
		payload: envelope.Topic + envelope.Event.GetTypeUrl() + string(envelope.Event.GetValue()),
	}
	switch v := decoded.(type) {
	case *api.TaskCreate:
		e.Container, e.Pid = v.ContainerID, v.Pid
	case *api.TaskStart:
		e.Container, e.Pid = v.ContainerID, v.Pid
	case *api.TaskExecAdded:
		e.Container, e.Exec = v.ContainerID, v.ExecID
	case *api.TaskExecStarted:
		e.Container, e.Exec, e.Pid = v.ContainerID, v.ExecID, v.Pid
	case *api.TaskExit:
		e.Container, e.Pid, e.Status, e.ExitedAt = v.ContainerID, v.Pid, v.ExitStatus, v.ExitedAt.AsTime()
		e.Exec = execOf(v.ContainerID, v.ID)
	case *api.TaskDelete:
		e.Container, e.Pid, e.Status, e.ExitedAt = v.ContainerID, v.Pid, v.ExitStatus, v.ExitedAt.AsTime()
		e.Exec = execOf(v.ContainerID, v.ID)
	case *api.TaskPaused:
		e.Container = v.ContainerID
	case *api.TaskResumed:
		e.Container = v.ContainerID
	case *api.TaskCheckpointed:
		e.Container = v.ContainerID
	case *api.TaskOOM:
		e.Container = v.ContainerID
	default:
		return Event{}, fmt.Errorf("event %s: unexpected type %T", envelope.Topic, v)
	}
	return e, nil
}

// execOf returns the exec id of an event: for the init process, events carry
// the container's own id, or none.
func execOf(container, id string) string {
	if id == container {
		return ""
	}
	return id
}
