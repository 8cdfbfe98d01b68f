package lifecycle

// Kind tells the two instances of the table apart.
type Kind string

// A container has one init and any number of execs.
const (
	Init Kind = "init"
	Exec Kind = "exec"
)

// KindOf returns the kind of the process an exec id names: "" is init.
func KindOf(exec string) Kind {
	if exec == "" {
		return Init
	}
	return Exec
}

// State is the state of one process as containerd sees it.
type State string

// The states. None is a process that was never created, or an exec nobody has added.
const (
	None    State = ""
	Created State = "created"
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
	Deleted State = "deleted"
)

// States lists every state, in the order of a life.
func States() []State { return []State{None, Created, Running, Paused, Stopped, Deleted} }

// Op is an operation: a command of a client, or an observation.
type Op string

// The commands, then the observations.
const (
	OpCreate     Op = "create"
	OpStart      Op = "start"
	OpExec       Op = "exec" // adds an exec; it is started by OpStart
	OpPause      Op = "pause"
	OpResume     Op = "resume"
	OpKill       Op = "kill"
	OpUpdate     Op = "update"
	OpCheckpoint Op = "checkpoint"
	OpCloseIO    Op = "close-io"
	OpDelete     Op = "delete"

	OpExit Op = "exit"
	OpOOM  Op = "oom"
)

// Commands lists the operations that go intent, effect, outcome.
func Commands() []Op {
	return []Op{OpCreate, OpStart, OpExec, OpPause, OpResume, OpKill, OpUpdate, OpCheckpoint, OpCloseIO, OpDelete}
}

// Observations lists the operations that are single records.
func Observations() []Op { return []Op{OpExit, OpOOM} }

// Observation says whether an operation is watched, not asked for.
func (o Op) Observation() bool { return o == OpExit || o == OpOOM }

// Phase is the place of a record within its operation.
type Phase string

// The phases. Of Done, Failed and Undone an intent has exactly one, in the end.
const (
	Intent   Phase = "intent"   // decided, nothing done yet
	Launched Phase = "launched" // the effect is about to be started; user code may have run from here on
	Done     Phase = "done"     // the effect is in the world
	Failed   Phase = "failed"   // the answer is an error, and the state is as before
	Undone   Phase = "undone"   // as if the intent had never been; a replay of its request does it again
	Observed Phase = "observed" // exit and oom
)

// Source is where the status of an exit comes from.
type Source string

// The sources, best first.
const (
	Reaped  Source = "reaped"  // wait status, from the keeper
	Pidfd   Source = "pidfd"   // PIDFD_GET_INFO on a pidfd held before the end (Linux 6.15)
	Runtime Source = "runtime" // what the runtime says of the container
	Unknown Source = "unknown" // the process is gone and nobody saw it go
)
