package lifecycle

import (
	"encoding/json"
	"fmt"
	"time"
)

// ProcessState is the folded state of one process.
type ProcessState struct {
	ID          string          `json:"id,omitempty"` // exec id, "" = init
	State       State           `json:"state,omitempty"`
	Process     Process         `json:"process,omitzero"`
	Started     time.Time       `json:"started,omitzero"` // At of create's outcome, then of start's
	Exit        *Exit           `json:"exit,omitempty"`
	Params      json.RawMessage `json:"params,omitempty"` // of create, or of exec
	StdinClosed bool            `json:"stdin_closed,omitempty"`
	OOM         OOM             `json:"oom,omitzero"`
	Cgroup      string          `json:"cgroup,omitempty"` // of init, lines of /proc/PID/cgroup
}

// Clamp returns an exit's time, moved so that it is not before the start of the process. Writers of exits
// call it: the keeper's clock is read when a process is reaped, which may be before runc start returned.
func (p ProcessState) Clamp(at time.Time) time.Time {
	if at.Before(p.Started) {
		return p.Started
	}
	return at
}

// Container is the fold of a journal. It is immutable once it was returned by Apply or Fold: maps and
// pointers inside are shared between successive Containers.
type Container struct {
	Init         ProcessState
	Execs        map[string]ProcessState
	Open         map[uint64]Record // open intents by sequence; Phase is Launched once that mark is there
	Answers      map[uint64]Record // done and failed by request number, until they are forgotten
	DeletedExecs uint64
	Forgotten    uint64 // requests below this number are answered for good
	Last         uint64 // the last sequence number used
}

// Process returns the state of init ("") or of an exec; the state of one that is not there is None.
func (c *Container) Process(exec string) ProcessState {
	if exec == "" {
		return c.Init
	}
	p := c.Execs[exec]
	p.ID = exec
	return p
}

// Opened returns the open intent of op on a process.
func (c *Container) Opened(op Op, exec string) (Record, bool) {
	for _, r := range c.Open {
		if r.Op == op && r.Exec == exec {
			return r, true
		}
	}
	return Record{}, false
}

// Live counts the execs that are running or being started.
func (c *Container) Live() int {
	n := 0
	for _, p := range c.Execs {
		if p.State == Running {
			n++
		}
	}
	for _, r := range c.Open {
		if r.Op == OpStart && r.Exec != "" && c.Execs[r.Exec].State != Running {
			n++
		}
	}
	return n
}

// InitExitTold is the rule of when init's exit is published: after the exit of every exec, and after whatever
// else of init is still to be told (its start, a resume that has let a killed init end, a checkpoint that has
// ended it), because containerd takes init's exit for the end of all.
func (c *Container) InitExitTold() bool {
	return c.Init.Exit != nil && !c.untold() && c.Live() == 0
}

// untold says whether a command on init is under way that is told of when it is done.
func (c *Container) untold() bool {
	for _, r := range c.Open {
		if r.Exec == "" && (r.Op == OpStart || r.Op == OpPause || r.Op == OpResume || r.Op == OpCheckpoint) {
			return true
		}
	}
	return false
}

// Check says whether an operation may begin now. It returns, in this order, an *[IllegalError] with NotFound
// where there is no such process, a *[BusyError] where an open intent has to end first, and an
// *[IllegalError] where the state forbids it.
func (c *Container) Check(op Op, exec string) error {
	if err := c.allows(op, exec); err != nil {
		return err
	}
	if because := c.initForbids(op, exec); because != "" {
		return &IllegalError{Kind: KindOf(exec), State: c.Process(exec).State, Op: op, Reason: Precondition, Because: because}
	}
	return nil
}

// allows is Check without the rules that tie execs to init.
func (c *Container) allows(op Op, exec string) error {
	if err := c.exists(op, exec); err != nil {
		return err
	}
	if err := c.busy(op, exec); err != nil {
		return err
	}
	_, err := Next(KindOf(exec), c.Process(exec).State, op)
	return err
}

// exists refuses operations on a process that is not there.
func (c *Container) exists(op Op, exec string) error {
	p := c.Process(exec)
	switch {
	case op == OpCreate && exec == "":
		return nil
	case op == OpExec && exec == "":
		return &IllegalError{Kind: Exec, Op: op, Reason: Precondition, Because: "it has no id"}
	case op == OpExec || c.Init.State == Deleted:
		p = c.Init // an exec is added to a container that is there, and ends with it
	}
	if p.State == None || p.State == Deleted {
		return &IllegalError{Kind: KindOf(p.ID), State: p.State, Op: op, Reason: NotFound}
	}
	return nil
}

// busy finds the oldest open intent that excludes the operation.
func (c *Container) busy(op Op, exec string) error {
	var found *BusyError
	for seq, r := range c.Open {
		if Excludes(Target{r.Op, r.Exec}, Target{op, exec}) && (found == nil || seq < found.Open.Seq) {
			found = &BusyError{Target: Target{op, exec}, Open: r}
		}
	}
	if found == nil {
		return nil
	}
	return found
}

// dying says that init has ended and its exit cannot be told yet. To a client the container still runs: an exec
// may be added, and is refused when it is started (containerd's client suite, TestIssue10589).
func (c *Container) dying() bool { return c.Init.State == Stopped && !c.InitExitTold() }

// initForbids holds the rules that tie execs to init.
func (c *Container) initForbids(op Op, exec string) string {
	switch {
	case exec != "" && op == OpExec && !c.dying():
		if _, err := Next(Init, c.Init.State, OpExec); err != nil {
			return "init is " + string(c.Init.State)
		}
	case exec != "" && op == OpStart && c.Init.State != Running:
		return "init is " + string(c.Init.State)
	case exec == "" && op == OpOOM && c.InitExitTold():
		return "its exit is told, and nothing but its delete is told after that"
	case exec == "" && op == OpDelete && c.Live() > 0:
		return fmt.Sprintf("%d execs are still running", c.Live())
	}
	return ""
}
