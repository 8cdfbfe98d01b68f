// Package crash marks the instructions at which a test can end, hold or
// fail the process.
//
// Every step has a position before or after it; a point is named
// <operation>.<position>, for example "start.after-effect". In a release build
// Here and Fail are empty and are compiled away, which a test checks; with the
// build tag crashpoints they look up what a test has armed (see armed.go).
package crash

import "slices"

// Position is the place inside an operation, in the order in which an
// operation passes them.
type Position string

// The positions of an operation.
const (
	BeforeIntent  Position = "before-intent"  // nothing is committed, nothing was done
	AfterIntent   Position = "after-intent"   // the intent is committed, nothing was done; error: the effect reports it
	AfterMount    Position = "after-mount"    // create: the rootfs is mounted
	AfterStdio    Position = "after-stdio"    // create, start of an exec: the keeper has the stdio, the runtime was not called
	AfterLaunched Position = "after-launched" // the mark "user code may run from here" is committed
	AfterRuntime  Position = "after-runtime"  // the runtime has done it, more is to do
	AfterDrain    Position = "after-drain"    // delete: all output is with the client
	AfterStreams  Position = "after-streams"  // delete, undo: the stdio is let go; recovery: it is taken over
	AfterEffect   Position = "after-effect"   // the effect is done, its outcome is not committed
	BeforeOutcome Position = "before-outcome" // the effect is done, if there is one, and its process found; nothing is committed
	AfterOutcome  Position = "after-outcome"  // committed, nothing published or answered
	AfterPublish  Position = "after-publish"  // published (delete: the outbox is empty), not answered
)

// The positions of the worker's other steps.
const (
	BeforeBundle  Position = "before-bundle"  // create: nothing exists of it; error: the keeper does not take the bundle
	AfterBundle   Position = "after-bundle"   // create: the keeper has the bundle, no journal exists
	AfterJournal  Position = "after-journal"  // create: the journal exists, the keeper does not have it; adopt: it is open
	AfterOptions  Position = "after-options"  // create: the options are saved, the keeper does not have the journal
	BeforeRecord  Position = "before-record"  // exit: taken from the keeper, not journaled
	AfterRecord   Position = "after-record"   // exit: journaled, not acknowledged to the keeper
	AfterFile     Position = "after-file"     // exit: journaled, and exit.json is written
	BeforeEffect  Position = "before-effect"  // publish, sweep, shutdown: it is about to be done
	BeforeAck     Position = "before-ack"     // publish: containerd has the event, the outbox still too
	BeforeJournal Position = "before-journal" // adopt: the keeper has something of a container, nothing was looked at
	BeforeSettle  Position = "before-settle"  // recovery: an open intent was judged, nothing committed
	AfterSettle   Position = "after-settle"   // recovery: an open intent was settled
	AfterClose    Position = "after-close"    // forget: the journal of a container that does not exist is closed
	AfterRecords  Position = "after-records"  // forget, abandon: its files are removed, the keeper holds what it has
	BeforeRelease Position = "before-release" // delete: all is told, the keeper still holds the descriptors
	AfterRelease  Position = "after-release"  // delete: the keeper lets go once the answer is out, it is not; forget: it has
	AfterSpool    Position = "after-spool"    // delete: the journal is in the spool, not answered
)

// The positions of the keeper's steps, and of the start that leaves it behind.
const (
	AfterLock    Position = "after-lock"    // start: it has the address to itself, nothing is bound
	AfterBind    Position = "after-bind"    // start: the socket listens, no keeper is there
	AfterFork    Position = "after-fork"    // start: the keeper is there, nobody knows; worker: it runs, it has said nothing
	AfterAddress Position = "after-address" // start: the bundle has the address, the caller does not
	AfterAnswer  Position = "after-answer"  // start: the caller has its answer, the lock is still held; leave: the worker knows
	AfterAccept  Position = "after-accept"  // accept: the connection is taken, nothing of it is read
	AfterNumber  Position = "after-number"  // request: it is numbered and kept, no worker has it
	AfterForward Position = "after-forward" // request: a worker has it to its last byte
	AfterReceive Position = "after-receive" // answer: the worker has given it, the client has nothing of it
	AfterWrite   Position = "after-write"   // answer: the client has it, the request is forgotten
	AfterHello   Position = "after-hello"   // worker: it has said hello, it was given nothing
	AfterReap    Position = "after-reap"    // exit: the zombie is gone, nothing is queued; death: what the worker has said is unread
	AfterQueue   Position = "after-queue"   // exit: queued, no worker was told
	AfterTell    Position = "after-tell"    // exit: a worker was told
	AfterAck     Position = "after-ack"     // exit: it is journaled, the worker says, and forgotten here; publish: the row is gone
	AfterKeep    Position = "after-keep"    // store, open, accept-stored: the descriptor is kept, the worker does not know
	AfterReply   Position = "after-reply"   // store: the worker knows
	AfterDrop    Position = "after-drop"    // drop: at once; drop-after: with its request
	AfterLeave   Position = "after-leave"   // rest: the worker had nothing to do and has left
	AfterWake    Position = "after-wake"    // wake: a stored descriptor wants a worker, none was started
	AfterUnlink  Position = "after-unlink"  // leave: the socket is gone, the answer is not given
	BeforeExit   Position = "before-exit"   // leave: every answer is written
)

// Process is whose instructions a point is among.
type Process string

// The processes that have points.
const (
	Worker Process = "worker" // perdure worker
	Keeper Process = "keeper" // containerd-shim-perdure-v2
)

// Point is a place at which a test can end a process.
type Point struct {
	Name    string // <operation>.<position>; an operation on an exec has "exec-" before its name
	Process Process
	Fails   bool // the step can be told to fail: action "error"
}

// steps are the positions that an operation passes.
type steps struct {
	operation string
	positions []Position
	fails     []Position // those of them that call Fail, the others call Here
}

// workers are the points of the worker. (A function, so that a release build has
// nothing to initialize.)
func workers() []steps {
	command := func(inside ...Position) []Position {
		return slices.Concat([]Position{BeforeIntent, AfterIntent}, inside, []Position{AfterEffect, BeforeOutcome, AfterOutcome})
	}
	fails := []Position{BeforeIntent, AfterIntent, BeforeOutcome}
	outcome := []Position{BeforeOutcome, AfterOutcome}
	return []steps{
		{"create", slices.Concat([]Position{BeforeBundle, AfterBundle, AfterJournal, AfterOptions},
			command(AfterMount, AfterStdio, AfterLaunched, AfterRuntime)), append(fails, BeforeBundle, AfterOptions)},
		{"start", command(AfterLaunched), fails},
		{"pause", command(), fails},
		{"resume", command(), fails},
		{"update", command(), fails},
		{"checkpoint", command(), fails},
		{"close-io", append(outcome, AfterEffect), outcome[:1]},
		{"exec-exec", outcome, outcome[:1]},
		{"exec-start", command(AfterStdio, AfterLaunched, AfterRuntime), fails},
		{"exec-kill", command(), fails},
		{"exec-exit", []Position{BeforeRecord, AfterRecord, AfterAck}, []Position{BeforeRecord}},
		{"exec-delete", command(AfterDrain), fails},
		{"exec-close-io", append(outcome, AfterEffect), outcome[:1]},
		{"kill", command(AfterRuntime), fails},
		{"sweep", []Position{BeforeEffect, AfterEffect}, nil},
		{"exit", []Position{BeforeRecord, AfterRecord, AfterFile, AfterAck}, []Position{BeforeRecord}},
		{"oom", []Position{BeforeRecord, AfterRecord}, nil},
		{"delete", append(command(AfterRuntime, AfterDrain, AfterStreams), AfterPublish, AfterSpool, BeforeRelease, AfterRelease), fails},
		{"undo", []Position{AfterRuntime, AfterStreams}, nil},
		{"forget", []Position{AfterClose, AfterRecords, AfterRelease}, nil},
		{"publish", []Position{BeforeEffect, BeforeAck, AfterAck}, []Position{BeforeEffect, BeforeAck}},
		{"shutdown", []Position{AfterOutcome, BeforeEffect}, nil},
		{"adopt", []Position{BeforeJournal, AfterJournal}, nil},
		{"recover", []Position{AfterStreams, BeforeSettle, AfterSettle}, []Position{BeforeSettle}},
		{"abandon", []Position{AfterRecords}, nil},
	}
}

// keepers are the points of the keeper: operation "keeper-<step>". Those of
// keeper-start are the short-lived start's.
func keepers() []steps {
	return []steps{
		{"keeper-start", []Position{AfterLock, AfterBind, AfterFork, AfterAddress, AfterAnswer}, nil},
		{"keeper-accept", []Position{AfterAccept}, nil},
		{"keeper-request", []Position{AfterNumber, AfterForward}, nil},
		{"keeper-answer", []Position{AfterReceive, AfterWrite}, nil},
		{"keeper-worker", []Position{AfterFork, AfterHello}, nil},
		{"keeper-death", []Position{AfterReap}, nil},
		{"keeper-exit", []Position{AfterReap, AfterQueue, AfterTell, AfterAck}, nil},
		{"keeper-store", []Position{AfterKeep, AfterReply}, nil},
		{"keeper-open", []Position{AfterKeep}, nil},
		{"keeper-accept-stored", []Position{AfterKeep}, nil},
		{"keeper-drop", []Position{AfterDrop}, nil},
		{"keeper-drop-after", []Position{AfterDrop}, nil},
		{"keeper-rest", []Position{AfterLeave}, nil},
		{"keeper-wake", []Position{AfterWake}, nil},
		{"keeper-leave", []Position{AfterUnlink, AfterAnswer, BeforeExit}, nil},
	}
}

// Points lists every point.
func Points() []Point {
	return slices.Concat(pointsOf(Worker, workers()), pointsOf(Keeper, keepers()))
}

func pointsOf(process Process, of []steps) []Point {
	var points []Point
	for _, s := range of {
		for _, position := range s.positions {
			points = append(points, Point{name(s.operation, "", position), process, slices.Contains(s.fails, position)})
		}
	}
	return points
}

// All lists the names of every point, for the tests that reach each of them.
func All() []string {
	var names []string
	for _, p := range Points() {
		names = append(names, p.Name)
	}
	return names
}

// Of lists the names of a process's points.
func Of(process Process) []string {
	var names []string
	for _, p := range Points() {
		if p.Process == process {
			names = append(names, p.Name)
		}
	}
	return names
}

func name(operation, exec string, position Position) string {
	if exec != "" {
		operation = "exec-" + operation
	}
	return operation + "." + string(position)
}
