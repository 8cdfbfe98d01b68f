package lifecycle

import "fmt"

// row holds what one state allows and where it leads.
type row map[Op]State

// table is the transition table. A cell that is not there is the zero State, and means illegal: None is
// never a target. Its two instances differ where containerd's tasks and execs differ.
//
// Where the stock shim and runc leave room, the cells say: an exec may be added to a container that is not
// yet started, but not to a paused one; close-io is harmless as long as there is a process to name, so that
// a repeated one is; a container that was created and never started can be deleted (runc kills its init). An
// oom of an init that is stopped is one of its execs', while the exit of init is not told because of them.
var table = map[Kind]map[State]row{
	Init: {
		None: {OpCreate: Created},
		Created: {
			OpStart: Running, OpExec: Created, OpKill: Created, OpUpdate: Created, OpCloseIO: Created,
			OpDelete: Deleted, OpExit: Stopped, OpOOM: Created,
		},
		Running: {
			OpPause: Paused, OpExec: Running, OpKill: Running, OpUpdate: Running, OpCheckpoint: Running,
			OpCloseIO: Running, OpExit: Stopped, OpOOM: Running,
		},
		Paused: {
			OpResume: Running, OpKill: Paused, OpUpdate: Paused, OpCheckpoint: Paused,
			OpCloseIO: Paused, OpExit: Stopped, OpOOM: Paused,
		},
		Stopped: {OpCloseIO: Stopped, OpDelete: Deleted, OpOOM: Stopped},
		Deleted: {},
	},
	Exec: {
		None:    {OpExec: Created},
		Created: {OpStart: Running, OpCloseIO: Created, OpDelete: Deleted, OpExit: Stopped},
		Running: {OpKill: Running, OpCloseIO: Running, OpExit: Stopped},
		Stopped: {OpCloseIO: Stopped, OpDelete: Deleted},
		Deleted: {},
	},
}

// Reason is why a state forbids an operation, in the words of gRPC's codes.
type Reason string

// The reasons. Package task maps them to status codes, once.
const (
	NotFound     Reason = "not found"
	Precondition Reason = "failed precondition"
	Exists       Reason = "already exists"
)

// IllegalError is an operation that the state of the process, or of its container, forbids.
type IllegalError struct {
	Kind    Kind
	State   State
	Op      Op
	Reason  Reason
	Because string // set where it is not the process's own state that forbids it
}

func (e *IllegalError) Error() string {
	switch {
	case e.Because != "":
		return fmt.Sprintf("cannot %s the %s process: %s", e.Op, e.Kind, e.Because)
	case e.State == None:
		return fmt.Sprintf("cannot %s the %s process: it does not exist", e.Op, e.Kind)
	case e.Reason == Exists:
		return fmt.Sprintf("cannot %s the %s process: it exists already and is %s", e.Op, e.Kind, e.State)
	}
	return fmt.Sprintf("cannot %s the %s process: it is %s", e.Op, e.Kind, e.State)
}

// Next returns the state a process of a kind is in after op, or an *[IllegalError].
func Next(kind Kind, from State, op Op) (State, error) {
	if to := table[kind][from][op]; to != None {
		return to, nil
	}
	return None, &IllegalError{Kind: kind, State: from, Op: op, Reason: reason(kind, from, op)}
}

// reason says why a cell is empty. Kill of a stopped process is NotFound: containerd's client suite asks for
// it and CRI takes it for success.
func reason(kind Kind, from State, op Op) Reason {
	switch {
	case begins(kind, op) && from != None:
		return Exists
	case from == None || from == Deleted:
		return NotFound
	case op == OpKill && from == Stopped:
		return NotFound
	}
	return Precondition
}

// begins says whether op is the one that brings a process of the kind into being.
func begins(kind Kind, op Op) bool {
	return kind == Init && op == OpCreate || kind == Exec && op == OpExec
}
