package soak

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"perdure/chaos-tests/checker"
)

// trouble is a fault that has taken a call's answer.
type trouble string

// Every error that is allowed is the result of one of these; the rules are in excuse.
const (
	// containerd was killed: gRPC's own words for a connection that is gone, not those of anybody who has answered.
	containerdKilled trouble = "containerd was killed"
	// The kernel's words for a full disk, from whoever met it first.
	fullDisk trouble = "the disk was full"
	// The same, also a moment later, from a recovery that cannot settle what is under way and is tried again. That may be the
	// very call that asks, whose effect is in the world.
	unsettled trouble = "the disk was full, and something is not settled yet"
	// The start of an exec whose runc could write neither its log nor its pidfile.
	runcMute trouble = "runc could not write"
	// The runc that was at work for such a call was killed, and the error says so.
	runcKilled trouble = "runc was killed"
	// runc gave up to freeze a cgroup, in its own words: version 1.1.5 tries so often only, and with cgroup v1 a process
	// that is just being forked is in its way.
	notFrozen trouble = "runc could not freeze"
	// runc freezes a container while it signals all of its processes (cgroup v1), and refuses an exec just then.
	frozen trouble = "runc has frozen it for a signal"
	// containerd itself waits for State for 2 s only (io.containerd.timeout.task.state), which a worker that is stopped, or a
	// busy machine, can take; and in a Delete for Shutdown for 3 s, which go by while it is frozen itself. For how long a
	// client may go without an answer, see state.
	notAwaited trouble = "containerd did not wait"
	// Something that must not be was seen elsewhere, and the run is broken off: nothing more is judged.
	runOver trouble = "the run is over"
)

// undone are the troubles after which nothing has happened; after the others it may have.
var undone = map[trouble]bool{fullDisk: true, notFrozen: true, frozen: true}

// What errors say.
const (
	noSpace      = "no space left on device"                                    // ENOSPC
	isFull       = "is full"                                                    // of the bundle's file system, where runc could not say why
	notSettled   = "is under way, and cannot be settled yet, it is tried again" // a recovery that is in trouble
	withoutWords = "the runtime ended without a word"                           // of an exec that may have run
)

// settleAgain is how long after its cause has gone a recovery may still say that it is in trouble.
const settleAgain = 15 * time.Second

// excuse says which trouble an error is the allowed result of, "" for none.
func (l *life) excuse(a answer, daemon int) trouble {
	says := func(text string) bool { return strings.Contains(a.Message, text) }
	full := len(l.s.faults.during(l.slot, a.Began, a.Ended, faultDisk)) > 0
	lately := len(l.s.faults.during(l.slot, a.Began-min(a.Began, uint64(settleAgain.Microseconds())), a.Ended, faultDisk)) > 0
	switch {
	case l.ctx.Err() != nil:
		return runOver
	case cut(a.code) && l.s.access.died(daemon) && cutOff(a.Message):
		return containerdKilled
	case says(notSettled) && says(noSpace) && lately:
		return unsettled
	case says(withoutWords) && full:
		return runcMute
	case l.runcWasKilled(a) && (says("signal: killed") || says("exit status 137") || says(withoutWords)):
		return runcKilled
	case full && (says(noSpace) || says(isFull)):
		return fullDisk
	case a.Op == checker.OpPause && says("unable to freeze"):
		return notFrozen
	case a.Op == checker.OpStart && a.Exec != "" && says("cannot exec in a paused container") && l.signalledAll(a):
		return frozen
	case a.Op == checker.OpDelete && says("failed to invoke shutdown: context deadline exceeded") &&
		len(l.s.faults.during(l.slot, a.Began, a.Ended, faultFreeze, faultStop, faultKill)) > 0:
		return notAwaited
	case a.code == codes.DeadlineExceeded && a.Op == checker.OpState && a.Ended-a.Began < uint64(callLimit.Microseconds()):
		return notAwaited
	}
	return ""
}

// cut are the codes of a call whose containerd has died under it: gRPC's own, for a connection that is gone
// (Unavailable) and for a client that was closed (Canceled).
func cut(code codes.Code) bool { return code == codes.Unavailable || code == codes.Canceled }

// cutOff says whether an error is gRPC's own.
func cutOff(message string) bool {
	return slices.ContainsFunc([]string{
		"the client connection is closing", "error reading from server", "transport", "connection refused", "connection error", "EOF",
	}, func(words string) bool { return strings.Contains(message, words) })
}

// runcWasKilled says whether a runc was killed during a call that was at work for such a one.
func (l *life) runcWasKilled(a answer) bool {
	return slices.ContainsFunc(l.s.faults.during(l.slot, a.Began, a.Ended, faultRuncKill), func(f fault) bool { return f.Op == string(a.Op) })
}
