// Package keeper is the process that must not die: it holds containerd's
// connections, the requests that are not answered, the parenthood of the
// container processes with their unreported exits, and the descriptors whose
// closing would hurt a container. Everything that thinks is in the worker,
// which the keeper starts, again and again.
//
// It promises that a worker may die at any instruction without a connection
// closing, a request getting lost, an exit status getting lost or a stored
// descriptor closing; that a worker never gets a request twice unmarked; and
// that what a worker writes is checked before it is believed: garbage gets it
// killed.
//
// It never blocks on anything but its own poll, never reads a payload, never
// runs anything but the worker, never writes to disk, and never grows with what
// a slow peer leaves lying: it stops reading instead. It imports the standard
// library and golang.org/x/sys only.
//
// One goroutine owns all state. Handlers of events change the state; after each
// round settle looks at the state and does what is due (start a worker, ping,
// kill, send, leave). Nothing else has a timer.
package keeper
