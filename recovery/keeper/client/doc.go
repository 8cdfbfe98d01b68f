// Package client is the worker's side of the channel to its keeper.
//
// It promises that the keeper's messages are always read, however slow their
// consumers are (queues here are unbounded; what the keeper sends is bounded by
// what exists: children, connections, marks), that a method with an error
// result has been carried out when it returns nil, and that Done is closed, and
// every waiting call fails with ErrGone, once the keeper's end is gone. A worker
// must then leave: it would hold the journals' locks against its successor.
//
// It never starts a process, never closes a descriptor it was lent, and imports
// the standard library and golang.org/x/sys only. All methods may be called
// from any goroutine.
package client
