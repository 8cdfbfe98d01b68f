// Package recovery judges what a worker that died left half done.
//
// An intent without an outcome is open. For each, Judge compares the intent
// with what is observed of it (runc's state, the pid file, runc's log, the
// mark that user code may have run) and decides: it happened (done), it did
// not (undone), it failed, or nobody can know (lost). The decision is a pure
// function with a table in docs/recovery.md; Settle observes, decides and
// returns outcome records, and changes nothing, so it can be killed anywhere
// and run again.
//
// It never starts user code and never runs an operation itself: what is undone is
// left to the client, whose request the keeper replays, and a signal that was
// asked for is sent again by package task.
package recovery
