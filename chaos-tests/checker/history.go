package checker

import "time"

// History is what was observed in one run. A recorder may fill Calls in any order; Events are in order of arrival.
type History struct {
	Calls  []Call
	Events []Event
	Runs   []Run
	Looks  []Look

	// Over says that nothing is under way any more: every client was answered or has given up, and there was time for
	// every event to arrive. Only then is something missing an error.
	Over bool
	// Left is what is still there after the last delete, a line each (process, mount, cgroup, socket, fifo, runtime state).
	Left []string
}

// Target is a process over its life. An id can be used again: Life counts the creates of the container that took effect,
// from 1 on. Exec is "" for the init. An exec id that is used again within one life gets a name of its own from the
// recorder ("e1#2").
type Target struct {
	Container string
	Life      int
	Exec      string
}

// Op is what a client asked for.
type Op string

// The operations of the Task API. OpStart and OpKill, OpDelete, OpWait, OpState and OpCloseIO are of Target's process.
const (
	OpCreate     Op = "create"
	OpStart      Op = "start"
	OpExec       Op = "exec" // adds an exec
	OpPause      Op = "pause"
	OpResume     Op = "resume"
	OpKill       Op = "kill"
	OpUpdate     Op = "update"
	OpCheckpoint Op = "checkpoint"
	OpCloseIO    Op = "close-io"
	OpDelete     Op = "delete"
	OpState      Op = "state"
	OpWait       Op = "wait"
	OpPids       Op = "pids"
	OpConnect    Op = "connect"
)

// Code is the class of an answer, by gRPC's names.
type Code string

// The classes that rules speak of. Any other says that there was no effect, so a recorder must be sure of that. Unanswered
// is a client that gave up, or whose connection ended: the effect may have happened, may still happen, or never will. A
// keeper that is killed is an unanswered OpDelete of each of its containers, from the kill until containerd has forgotten
// the task.
const (
	OK                 Code = ""
	NotFound           Code = "NotFound"
	AlreadyExists      Code = "AlreadyExists"
	FailedPrecondition Code = "FailedPrecondition"
	Unanswered         Code = "unanswered"
)

// States of a process, as OpState answers and as the runtime says.
const (
	Created = "created"
	Running = "running"
	Pausing = "pausing"
	Paused  = "paused"
	Stopped = "stopped"
)

// Call is one request of a client with its answer. Times are ticks of one clock for the whole history: a call that ended
// before another began has a smaller Ended than the other's Began.
type Call struct {
	Target
	Began, Ended uint64 // Ended is the tick of giving up where Code is Unanswered
	Op           Op
	Signal       int    // of OpKill
	Request      uint64 // calls of one number are one request that was answered more than once; 0: asked once
	Code         Code
	Message      string // of an error, for people

	Pid      int       // answers of create, start, state, connect and delete; 0: none
	Start    uint64    // start time of Pid (field 22 of /proc/PID/stat), where the recorder has read it; 0: not
	Status   uint32    // answers of wait and delete, and of state where it is Stopped
	ExitedAt time.Time // the same
	State    string    // answer of state
}

// Event is one event as it arrived.
type Event struct {
	Target
	At       uint64    // tick of its arrival
	Name     string    // create start exec-added exec-started exit delete paused resumed oom checkpointed
	Time     time.Time // that it carries itself: when it happened by the shim's clock; zero: not known
	Pid      int
	Status   uint32    // of exit and delete
	ExitedAt time.Time // of exit and delete
	Raw      string    // the payload without the envelope's time, byte for byte: an event that comes again is equal in it
}

// Run is the truth about one process that a client wanted started, from whoever really knows: the fake runtime, or the
// process's own marks.
type Run struct {
	Target
	Starts int    // how often user code was started, or NotCounted
	Pid    int    // of the process; 0: not known
	Start  uint64 // its start time; 0: not known
	Ended  bool
	// Statuses are what it can truly have ended with: one mostly, more where the test cannot know who came first. None:
	// not known, so any.
	Statuses []uint32
	// Unknowable: whoever could have known was killed, so 255 is true as well.
	Unknowable bool
	OOM        bool // the kernel has killed it for want of memory
	Streams    []Stream

	Heard   bool     // somebody has counted the signals that it was sent
	Signals []Signal // all of them, where Heard
	EndedAt uint64   // tick of its end, where Heard; 0: not known
}

// Signal is one that a process was sent, by whoever really knows. One that it cannot take yet (it is frozen) counts.
type Signal struct {
	At     uint64 // tick of the sending
	Number int
}

// NotCounted is the Starts of a process whose own mark may be missing although it ran, because it was killed early.
const NotCounted = -1

// UnknownStatus is what is said of a process that nobody saw end.
const UnknownStatus = 255

// Stream is one output of a process as its client read it.
type Stream struct {
	Name      string // stdout, stderr
	Want, Got string
	Partial   bool // the process was killed while writing, or the client has not read to the end: Got is a beginning of Want
}

// Look is a container's state as the shim and as the runtime says it, by somebody who looked while no command was under
// way and again if a process was just ending. A look that some command overlaps is not judged.
type Look struct {
	Target
	Began, Ended uint64
	State        string // OpState's answer; "": NotFound
	Runtime      string // the runtime's status; "": it does not know the container
	Pid          int    // the runtime's pid of the init; 0: not asked for
}
