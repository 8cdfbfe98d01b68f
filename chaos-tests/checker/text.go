package checker

import (
	"fmt"
	"strings"
	"time"
)

// String is "c1 (life 2), exec e1".
func (t Target) String() string {
	text := fmt.Sprintf("%s (life %d)", t.Container, t.Life)
	if t.Exec != "" {
		text += ", exec " + t.Exec
	}
	return text
}

// String is "pause of c1 (life 1) [12-15]: FailedPrecondition".
func (c Call) String() string {
	var answer strings.Builder
	switch {
	case c.Code != OK:
		answer.WriteString(strings.TrimSuffix(string(c.Code)+" "+c.Message, " "))
	case c.State != "":
		answer.WriteString(c.State)
	default:
		answer.WriteString("ok")
	}
	if c.Code == OK && c.Pid != 0 {
		fmt.Fprintf(&answer, ", pid %d", c.Pid)
	}
	if end, ok := c.end(); ok {
		fmt.Fprintf(&answer, ", %s", end)
	}
	return fmt.Sprintf("%s of %s [%d-%d]: %s", c.Op, c.Target, c.Began, c.Ended, &answer)
}

// String is "exit of c1 (life 1) at tick 17, pid 5: 7 at 12:00:00.5".
func (e Event) String() string {
	text := fmt.Sprintf("event %s of %s at tick %d", e.Name, e.Target, e.At)
	if e.Pid != 0 {
		text += fmt.Sprintf(", pid %d", e.Pid)
	}
	if end, ok := e.end(); ok {
		text += ": " + end.String()
	}
	return text
}

// ending is what somebody says of how a process ended.
type ending struct {
	status uint32
	at     time.Time
}

func (e ending) String() string {
	return fmt.Sprintf("%d at %s", e.status, e.at.UTC().Format("15:04:05.999999999"))
}

func (e ending) same(other ending) bool { return e.status == other.status && e.at.Equal(other.at) }

// end returns how the process ended, where the answer says so.
func (c Call) end() (ending, bool) {
	says := c.Op == OpWait || c.Op == OpDelete || c.Op == OpState && c.State == Stopped
	return ending{c.Status, c.ExitedAt}, says && c.Code == OK
}

func (e Event) end() (ending, bool) {
	return ending{e.Status, e.ExitedAt}, e.Name == "exit" || e.Name == "delete"
}
