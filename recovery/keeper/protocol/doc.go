// Package protocol is the language of the keeper: ttrpc frames and the few
// fields of their requests that it reads, the metadata it appends, and the
// messages of the control channel between keeper and worker.
//
// It promises to be pure (no I/O, no clock, no goroutine), to be the only
// definition of these bytes on both sides, to refuse what it does not
// understand, and never to panic or to allocate more than it was given,
// whatever the bytes are. It imports the standard library only.
//
// It never interprets a payload, and never rewrites one: what the keeper has to
// say is appended, and protobuf's rule that the last field wins does the rest.
package protocol

// Version of the control messages. A worker whose hello names another one is
// not used; raise it with every change of a message's layout.
const Version = 2
