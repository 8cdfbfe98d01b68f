package lifecycle

import (
	"encoding/json"
	"fmt"
	"time"
)

// Record is one line of a journal. The writer fills Op, Phase, Exec, At and what belongs to the operation;
// [Container.Stamp] fills Seq, From, To, and what an outcome shares with its intent.
type Record struct {
	Seq     uint64          `json:"seq"`
	Op      Op              `json:"op"`
	Phase   Phase           `json:"phase"`
	Intent  uint64          `json:"intent,omitempty"`  // launched and outcomes: sequence of the intent they belong to
	Request uint64          `json:"request,omitempty"` // the keeper's number of the request that asked, 0 = none
	Exec    string          `json:"exec,omitempty"`    // exec id, "" = init
	From    State           `json:"from,omitempty"`    // state of the process before this record
	To      State           `json:"to,omitempty"`      // and after it; equal to From where nothing moved
	Process *Process        `json:"process,omitempty"` // done of what brings it up (create, an exec's or a restored init's start), exit
	Exit    *Exit           `json:"exit,omitempty"`    // exit
	OOM     *OOM            `json:"oom,omitempty"`     // oom
	Cgroup  string          `json:"cgroup,omitempty"`  // with the Process of init: its lines of /proc/PID/cgroup
	Params  json.RawMessage `json:"params,omitempty"`  // the request, in package task's own form
	Answer  json.RawMessage `json:"answer,omitempty"`  // the answer, in package task's own form
	Error   *Error          `json:"error,omitempty"`   // failed
	At      time.Time       `json:"at,omitzero"`       // for people; order comes from Seq alone
}

// Process identifies a process within one boot. A pid alone identifies nothing: it is used again.
type Process struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start,omitempty"` // field 22 of /proc/PID/stat, clock ticks since boot
}

// Exit is how a process ended.
type Exit struct {
	Status uint32    `json:"status"` // exit code, or 128 + signal
	At     time.Time `json:"at"`
	Source Source    `json:"source"`
}

// OOM counts what was told of a container's running out of memory. Each record has the sums, so that the
// last one is enough.
type OOM struct {
	Told uint64 `json:"told"` // TaskOOM events, this one included
	// Kills is how many processes in the container's cgroup the kernel has killed, by its own counter, as far
	// as they are told.
	Kills uint64 `json:"kills,omitempty"`
}

// Error is an error answer as it goes to the client.
type Error struct {
	Code    string `json:"code"` // gRPC code name, e.g. FailedPrecondition
	Message string `json:"message"`
}

// Error makes an *Error usable as an error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// RecordError is a record that cannot follow the ones before it: a mistake of the writer, or damage.
type RecordError struct {
	Record Record
	Rule   string // what was broken
}

func (e *RecordError) Error() string {
	of := "init"
	if e.Record.Exec != "" {
		of = fmt.Sprintf("exec %q", e.Record.Exec)
	}
	return fmt.Sprintf("journal record %d (%s %s of %s): %s", e.Record.Seq, e.Record.Op, e.Record.Phase, of, e.Rule)
}

// UnknownStatus is the status of a process that nobody saw end: what containerd itself says then.
const UnknownStatus = 255

// IntentName names the intent a record is, or belongs to: its files in the bundle and its processes carry it.
func (r Record) IntentName() string {
	seq := r.Intent
	if seq == 0 {
		seq = r.Seq
	}
	return fmt.Sprintf("%s-%d", r.Op, seq)
}

// outcome says whether the record closes an intent.
func (r Record) outcome() bool { return r.Phase == Done || r.Phase == Failed || r.Phase == Undone }

// answers says whether the record is what a replay of its request is answered with.
func (r Record) answers() bool { return r.Request != 0 && (r.Phase == Done || r.Phase == Failed) }
