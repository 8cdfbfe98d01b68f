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

// The positions of an operation that has an effect.
const (
	AfterIntent   Position = "after-intent"   // the intent is committed, nothing was done
	AfterLaunched Position = "after-launched" // the mark "user code may run from here" is committed
	AfterEffect   Position = "after-effect"   // the effect is done, its outcome is not committed
	AfterOutcome  Position = "after-outcome"  // committed, nothing published or answered
	AfterPublish  Position = "after-publish"  // published (delete: the outbox is empty), not answered
)

// The positions of the worker's other steps.
const (
	BeforeRecord  Position = "before-record"  // exit: taken from the keeper, not journaled
	AfterRecord   Position = "after-record"   // exit: journaled, not acknowledged to the keeper
	BeforeAck     Position = "before-ack"     // publish: containerd has the event, the outbox still too
	AfterBundle   Position = "after-bundle"   // create: the keeper has the bundle, no journal exists
	AfterJournal  Position = "after-journal"  // create: the journal exists, the keeper does not have it
	BeforeSettle  Position = "before-settle"  // recovery: an open intent was judged, nothing committed
	AfterRelease  Position = "after-release"  // delete: the keeper lets go once the answer is out, it is not
	BeforeRelease Position = "before-release" // delete: all is told, the keeper still holds the descriptors
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

var (
	command     = []Position{AfterIntent, AfterEffect, AfterOutcome}
	launch      = []Position{AfterIntent, AfterLaunched, AfterEffect, AfterOutcome}
	observation = []Position{BeforeRecord, AfterRecord}
)

// workers are the points of the worker. (A function, so that a release build has
// nothing to initialize.)
func workers() []steps {
	return []steps{
		{"create", slices.Concat([]Position{AfterBundle, AfterJournal}, launch), nil},
		{"start", launch, nil},
		{"pause", command, nil},
		{"resume", command, nil},
		{"update", command, nil},
		{"checkpoint", command, nil},
		{"close-io", []Position{AfterOutcome}, nil},
		{"exec-exec", []Position{AfterOutcome}, nil},
		{"exec-start", launch, nil},
		{"exec-kill", command, nil},
		{"exec-exit", observation, nil},
		{"exec-delete", command, nil},
		{"exec-close-io", []Position{AfterOutcome}, nil},
		{"kill", command, nil},
		{"exit", observation, nil},
		{"oom", observation, nil},
		{"delete", slices.Concat(command, []Position{AfterPublish, BeforeRelease, AfterRelease}), nil},
		{"publish", []Position{BeforeAck}, nil},
		{"recover", []Position{BeforeSettle}, nil},
	}
}

// keepers are the points of the keeper: operation "keeper" or "keeper-<step>".
func keepers() []steps {
	return []steps{}
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
