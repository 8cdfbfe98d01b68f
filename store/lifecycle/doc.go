// Package lifecycle says what may happen to a container and its execs, and in which order.
//
// It is pure: standard library only, no clock, no I/O, no goroutines. A [Container] is the fold of the
// records of its journal; [Container.Apply] returns the next one and leaves the old one as it was, so a
// published Container can be read by anybody without a lock.
//
// There is one transition table, [kind][state][operation] (table.go), and one table of operations that
// cannot be under way beside each other (exclude.go). Everything that refuses, refuses with one of three
// typed errors: *[IllegalError] (the state forbids it), *[BusyError] (an open intent forbids it for now),
// *[RecordError] (the writer of a journal broke a rule; never caused by a client).
//
// A command is written as an intent, then perhaps the mark that its effect was launched, then one outcome
// (done, failed or undone). What was only watched (exit, oom) is one record. While an intent is open the
// process is "starting", "pausing" and so on; those are not states.
//
// The order that holds in every history Fold accepts:
//
//	create < start < exec added < exec started < exec exit < delete
//	an exit is never earlier than the start it ends, neither in sequence nor in time
//	an oom comes before the exit it explains
//	nothing happens to a process after its delete, to an exec after the container's
//
// An exit can overtake the outcome of an intent (a process that ends while it is being paused): the outcome
// is then recorded like any other, and the process stays stopped.
package lifecycle

//go:generate go test -run TestDocument -update .
