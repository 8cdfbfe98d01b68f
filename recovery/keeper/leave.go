package keeper

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

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
	if k.promisedNow() {
		k.reply(m.Call, "another start was told to use this keeper just now", -1)
		return
	}
	k.log("info", "leaving, on request %d", m.Request)
	k.worker.leaves = append(k.worker.leaves, m.Call)
}

// promisedNow says that a `start` has looked at the socket, and so answered with
// it, but its client has not come yet. A look is a connection without a frame.
func (k *keeper) promisedNow() bool {
	k.accept(0)
	for _, c := range k.conns {
		if !c.heard && k.now.Sub(c.at) < k.Promise {
			return true
		}
	}
	return k.now.Sub(k.promised) < k.Promise
}

// tendLeave gives the socket up as soon as the start lock can be had, and
// reports when nobody is owed anything. Waits are not answered: their
// connections close.
func (k *keeper) tendLeave() (over bool) {
	if k.leaving.IsZero() {
		if k.worker == nil || len(k.worker.leaves) == 0 {
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
	if k.promisedNow() {
		k.answerLeave("another start was told to use this keeper just now")
		return
	}
	if err := rendezvous.Remove(k.path); err != nil {
		k.log("error", "unlinking the socket: %v", err)
	}
	k.poll.remove(k.listener)
	unix.Close(k.Listener)
	k.listener = nil
	k.leaving = k.now
	k.answerLeave("")
}

func (k *keeper) answerLeave(failure string) {
	for _, call := range k.worker.leaves {
		k.reply(call, failure, -1)
	}
	k.worker.leaves = nil
}
