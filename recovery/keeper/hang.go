package keeper

import (
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// hang is what is known about hangs over workers.
type hang struct {
	limit  time.Duration
	last   time.Time     // when a worker hung
	excess time.Duration // this round came so much later than it was to
}

// excuse takes note of a round that came late: the keeper itself was stopped or
// starved, and so may the worker have been. What is seen as late is given to it.
func (h *hang) excuse(now, alarm time.Time) {
	const notable = 250 * time.Millisecond
	h.excess = 0
	if late := now.Sub(alarm); !alarm.IsZero() && late > notable {
		h.excess = late
	}
}

// tendHang pings the worker while a request is unanswered, on behalf of the
// oldest one, one ping at a time, and ends the worker when no pong comes. An
// answer to that request is as good as the pong.
func (k *keeper) tendHang() {
	w := k.worker
	if w == nil || !w.serving() {
		return
	}
	if k.now.Sub(k.hang.last) > k.Forgive {
		k.hang.limit = k.Limits.Hang
	}
	if w.ping != nil && w.ping.done {
		w.ping = nil
	}
	if w.ping != nil {
		w.pingAt = w.pingAt.Add(k.hang.excess)
		if k.due(w.pingAt.Add(k.hang.limit)) {
			k.hung()
		}
		return
	}
	r := k.oldest()
	if r == nil || !k.due(later(later(r.at, w.greeted).Add(k.PingAfter), w.pingAt.Add(k.PingEvery))) {
		return
	}
	w.ping, w.pingAt = r, k.now
	w.pingNext++
	k.send(protocol.Message{Type: protocol.Ping, Number: w.pingNext, Request: r.number}, -1)
	k.due(w.pingAt.Add(k.hang.limit))
}

func (k *keeper) pong(number uint64) {
	if number == k.worker.pingNext {
		k.worker.ping = nil
	}
}

// hung ends the worker: SIGQUIT makes a Go program write the stacks of all its
// goroutines to the log; tendWorker follows with SIGKILL.
func (k *keeper) hung() {
	w := k.worker
	k.log("error", "worker %d hangs: no answer for %v to a ping for request %d (%s)", w.pid, k.hang.limit, w.ping.number, w.ping.method())
	k.hang.last = k.now
	k.hang.limit = min(2*k.hang.limit, k.HangMax)
	w.hung, w.quitAt = true, k.now
	_ = unix.Kill(w.pid, unix.SIGQUIT)
	k.due(w.quitAt.Add(k.Kill))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
