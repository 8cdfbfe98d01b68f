package soak

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"syscall"
	"time"
)

// slot is one container id. It has one life after the other, the next one right after the delete of the last.
type slot struct {
	ID       string
	Group    string // the id that its shim is started for: its own, or its pod's
	Terminal bool
	HostPID  bool // shares the machine's pid namespace: its output is copied, and what it leaves behind is to be killed
	Stdin    bool
}

// slots are the containers of a run: single ones, and pods of four that share a shim.
func slots() []slot {
	var all []slot
	for i := range 10 {
		id := fmt.Sprintf("s%d", i)
		all = append(all, slot{ID: id, Group: id, Terminal: i%3 == 1, HostPID: i%5 == 4, Stdin: i%3 == 2})
	}
	for pod := range 3 {
		for i := range 4 {
			id := fmt.Sprintf("p%d-%d", pod, i)
			all = append(all, slot{ID: id, Group: fmt.Sprintf("p%d", pod), Terminal: i == 1, HostPID: i == 2, Stdin: i == 3})
		}
	}
	return all
}

// stream returns the choices of one part of a run. Every part has a stream of its own: so the plan of a container or
// of a kind of fault does not depend on what else there is, and stays when a failure is narrowed down.
func stream(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// ending is how the init of a life comes to its end.
type ending string

const (
	endItself    ending = "by itself"                // it exits with its code
	endTerm      ending = "SIGTERM"                  // which it handles, with its code
	endKill      ending = "SIGKILL"                  // 137
	endKillAll   ending = "SIGKILL for all"          // 137
	endStranger  ending = "SIGKILL from a stranger"  // 137, nobody was asked
	endPaused    ending = "SIGKILL while paused"     // 137
	endUnstarted ending = "delete before start"      // user code never runs
	endCreated   ending = "SIGKILL before start"     // user code never runs
	endLost      ending = "stranger's before start"  // the same, nobody was asked
	endQuick     ending = "by itself, as it started" // no signal is needed
)

var endings = []ending{
	endItself, endItself, endItself, endItself, endTerm, endTerm, endKill, endKill, endKillAll, endStranger,
	endPaused, endUnstarted, endCreated, endLost, endQuick, endQuick,
}

// started says whether user code runs.
func (e ending) started() bool { return e != endUnstarted && e != endCreated && e != endLost }

// lifePlan is everything that will be done in one life of a container.
type lifePlan struct {
	Output int    // lines that the init writes
	Input  int    // lines that it is given, where it has a stdin
	Code   uint32 // that it exits with, where it can
	Steps  []step
	Ending ending
	Left   int // execs that run when init ends
}

// step is one thing that the client of a container does while it runs.
type step struct {
	Op    string
	Exec  *execPlan // of "exec": goes on beside the next steps
	Value int       // of "update": CPU shares; of "signal": the signal
	Delay time.Duration
}

func (s step) String() string {
	switch {
	case s.Exec != nil:
		return fmt.Sprintf("%s %+v", s.Op, *s.Exec)
	case s.Value != 0:
		return fmt.Sprintf("%s %d", s.Op, s.Value)
	}
	return s.Op
}

// execKind is what an exec does.
type execKind string

const (
	execOutput  execKind = "output"   // writes, and exits with its code
	execInput   execKind = "input"    // copies its input, and exits with its code
	execKilled  execKind = "killed"   // is killed by a signal
	execSize    execKind = "terminal" // tells the size of its terminal
	execUnused  execKind = "unused"   // is added and deleted
	execMissing execKind = "missing"  // its program does not exist
	execLeft    execKind = "left"     // runs until init ends
)

// execPlan is everything about one exec.
type execPlan struct {
	Kind     execKind
	Terminal bool
	Lines    int
	Code     uint32
	Signal   syscall.Signal
	Rows     uint32
}

var steps = []string{"exec", "exec", "exec", "exec", "exec", "pause", "update", "signal", "signal", "pids", "stats", "state", "refused", "resize", "journal", "join"}

// planLife is the plan of the nth life in a slot.
func planLife(seed uint64, s slot, n int) lifePlan {
	r := stream(seed, fmt.Sprintf("life %d of %s", n, s.ID))
	p := lifePlan{
		Output: r.IntN(3000), Code: uint32(r.IntN(256)), Ending: endings[r.IntN(len(endings))],
	}
	if s.Stdin {
		p.Input = 1 + r.IntN(3000)
	}
	if p.Ending == endQuick || !p.Ending.started() {
		return p
	}
	for range r.IntN(10) {
		p.Steps = append(p.Steps, planStep(r))
	}
	if r.IntN(3) == 0 {
		p.Left = 1 + r.IntN(3)
	}
	return p
}

func planStep(r *rand.Rand) step {
	st := step{Op: steps[r.IntN(len(steps))], Delay: time.Duration(r.IntN(80)) * time.Millisecond}
	switch st.Op {
	case "exec":
		st.Exec = planExec(r)
	case "update":
		st.Value = 100 + r.IntN(900)
	case "signal":
		st.Value = r.IntN(3)
	}
	return st
}

var execKinds = []execKind{execOutput, execOutput, execOutput, execInput, execInput, execKilled, execKilled, execSize, execUnused, execMissing}

// killers are signals that a shell without handlers ends by.
var killers = []syscall.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGUSR2, syscall.SIGHUP}

func planExec(r *rand.Rand) *execPlan {
	p := &execPlan{
		Kind: execKinds[r.IntN(len(execKinds))], Terminal: r.IntN(4) == 0, Lines: r.IntN(4000), Code: uint32(r.IntN(256)),
		Signal: killers[r.IntN(len(killers))], Rows: uint32(10 + r.IntN(60)),
	}
	switch p.Kind {
	case execInput:
		p.Terminal = false // it would echo
	case execSize:
		p.Terminal = true
	}
	return p
}
