package keeper

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
	"perdure/recovery/keeper/rendezvous"
)

// leave answers the worker's wish to end the keeper: at once where it must be
// refused, else when the socket is gone.
func (k *keeper) leave(m protocol.Message) {
	if !k.leaving.IsZero() {
		k.reply(m.Call, "", -1)
		return
	}
	if why := k.stays(m.Request); why != "" {
		k.reply(m.Call, why, -1)
		return
	}
	k.log("info", "leaving, on request %d", m.Request)
	k.worker.leaves = append(k.worker.leaves, m)
}

// stays says why the keeper must not leave on a request; empty: it may. A Create
// that has come is a task to be, though the worker may not have read it when it
// found that no task is left. The request's own does not count: it has failed.
func (k *keeper) stays(request uint64) string {
	if k.promisedNow() {
		return "another start was told to use this keeper just now"
	}
	for _, r := range k.open {
		if r.creates && !r.done && r.number != request {
			return fmt.Sprintf("request %d creates a task", r.number)
		}
	}
	return ""
}

// promisedNow says that a `start` has looked at the socket, and so answered with
// it, but its client has not come yet, or has come and done nothing: containerd
// connects at once, and may take long to get to its Create. A look is a
// connection without a frame.
func (k *keeper) promisedNow() bool {
	k.accept(0)
	for len(k.promises) > 0 && k.now.Sub(k.promises[0]) >= k.Promise {
		k.promises = k.promises[1:]
	}
	return len(k.promises) > 0 || slices.ContainsFunc(k.conns, func(c *conn) bool { return !c.acted })
}

// keepPromise takes a client that has come at a moment for that of the first
// `start` before it. Each start has a client of its own.
func (k *keeper) keepPromise(at time.Time) {
	if len(k.promises) > 0 && !k.promises[0].After(at) {
		k.promises = k.promises[1:]
	}
}

// tendLeave gives the socket up as soon as the start lock can be had, and
// reports when nobody is owed anything. Waits are not answered: their
// connections close.
func (k *keeper) tendLeave() (over bool) {
	if k.leaving.IsZero() {
		if len(k.wishes()) == 0 && !k.unheard() {
			return false
		}
		k.giveUpSocket()
		if k.leaving.IsZero() {
			return false
		}
	}
	if k.due(k.leaving.Add(k.Leave)) {
		k.log("warning", "left, though answers were not taken for %v", k.Leave)
		return true
	}
	if k.oldest() != nil {
		return false
	}
	for _, c := range k.conns {
		if c.out.size() > 0 {
			return false
		}
	}
	return true
}

// unheard says that nobody will come: the start that has left this keeper behind was killed, mostly, before anybody was
// told of it, and who asked for it has given up.
func (k *keeper) unheard() bool {
	return !k.heard && k.due(k.born.Add(k.Unheard)) && !k.expected() && len(k.conns) == 0
}

// expected is promisedNow, and has the keeper look again when the last promise is over.
func (k *keeper) expected() bool {
	if !k.promisedNow() {
		return false
	}
	if n := len(k.promises); n > 0 {
		k.due(k.promises[n-1].Add(k.Promise))
	}
	return true
}

// giveUpSocket unlinks under the start lock: no `start` can have found the
// socket and not be seen here.
func (k *keeper) giveUpSocket() {
	lock, err := rendezvous.LockStart(k.path, 0)
	if errors.Is(err, rendezvous.ErrHeld) {
		k.due(k.now.Add(5 * time.Millisecond))
		return
	}
	if err != nil {
		k.log("error", "leaving without the lock: %v", err)
	} else {
		defer lock.Close()
	}
	for _, m := range k.wishes() {
		if why := k.stays(m.Request); why != "" {
			k.answerLeave(why)
			return
		}
	}
	if len(k.wishes()) == 0 && !k.unheard() {
		return // somebody has come while the lock was waited for
	}
	if err := rendezvous.Remove(k.path); err != nil {
		k.log("error", "unlinking the socket: %v", err)
	}
	k.poll.remove(k.listener)
	unix.Close(k.Listener)
	k.listener = nil
	k.leaving = k.now
	crash.Here("keeper-leave", "", crash.AfterUnlink)
	k.answerLeave("")
	crash.Here("keeper-leave", "", crash.AfterAnswer)
}

// wishes are the worker's calls that want the keeper to leave.
func (k *keeper) wishes() []protocol.Message {
	if k.worker == nil {
		return nil
	}
	return k.worker.leaves
}

func (k *keeper) answerLeave(failure string) {
	for _, m := range k.wishes() {
		k.reply(m.Call, failure, -1)
	}
	if k.worker != nil {
		k.worker.leaves = nil
	}
}
