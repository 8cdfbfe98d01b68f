// Package crash marks the instructions at which a test can end the process.
//
// Every effect has a position before and after it; a position is named
// <operation>.<position>, for example "start.after-effect". In a release
// build Here is empty and is compiled away, which a test checks; with the
// build tag crashpoints it looks up what a test has armed (see on.go).
package crash

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

// All lists every point, for the tests that reach each of them. An operation
// on an exec has "exec-" before its name.
func All() []string {
	command := []Position{AfterIntent, AfterEffect, AfterOutcome}
	launch := []Position{AfterIntent, AfterLaunched, AfterEffect, AfterOutcome}
	observation := []Position{BeforeRecord, AfterRecord}
	var points []string
	for _, op := range []struct {
		name      string
		positions []Position
	}{
		{"create", append([]Position{AfterBundle, AfterJournal}, launch...)},
		{"start", launch},
		{"pause", command},
		{"resume", command},
		{"update", command},
		{"checkpoint", command},
		{"close-io", []Position{AfterOutcome}},
		{"exec-exec", []Position{AfterOutcome}},
		{"exec-start", launch},
		{"exec-kill", command},
		{"exec-exit", observation},
		{"exec-delete", command},
		{"exec-close-io", []Position{AfterOutcome}},
		{"kill", command},
		{"exit", observation},
		{"oom", observation},
		{"delete", append(command, AfterPublish, BeforeRelease, AfterRelease)},
		{"publish", []Position{BeforeAck}},
		{"recover", []Position{BeforeSettle}},
	} {
		for _, position := range op.positions {
			points = append(points, op.name+"."+string(position))
		}
	}
	return points
}
