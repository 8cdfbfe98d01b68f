package keeper

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
			k.late()
		}
		return
	}
	r := k.oldest()
	if r == nil || !k.due(later(later(r.at, w.greeted).Add(k.PingAfter), w.pingAt.Add(k.PingEvery))) {
		return
	}
	w.ping, w.pingAt, w.look = r, k.now, look{}
	w.pingNext++
	k.send(protocol.Message{Type: protocol.Ping, Number: w.pingNext, Request: r.number}, -1)
	k.due(w.pingAt.Add(k.hang.limit))
}

func (k *keeper) pong(number uint64) {
	if number == k.worker.pingNext {
		k.worker.ping = nil
	}
}

// look is one look at how long the threads of a worker have waited for a processor.
type look struct {
	at     time.Time
	waited map[string]uint64 // by thread, ns
}

// late takes a second look at a worker whose pong is late, for a third of the limit:
// one that waits for a processor for most of that time does not hang, it is starved.
// That is believed for HangMax; a machine that gives it nothing for so long is better
// off without it.
func (k *keeper) late() {
	w := k.worker
	last, length := w.look, k.hang.limit/3
	if !last.at.IsZero() && !k.due(last.at.Add(length)) {
		return
	}
	w.look = look{k.now, waited(w.pid)}
	starved := !last.at.IsZero() && longest(last.waited, w.look.waited) > k.now.Sub(last.at)/2
	if !last.at.IsZero() && (!starved || k.now.Sub(w.pingAt) > k.hang.limit+k.HangMax) {
		k.hung()
		return
	}
	k.due(w.look.at.Add(length))
}

// waited reads how long each thread of a process has waited on a run queue: the second
// field of /proc/PID/task/TID/schedstat (Linux, Documentation/scheduler/sched-stats).
// A kernel without it shows nobody waiting.
func waited(pid int) map[string]uint64 {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	threads := map[string]uint64{}
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			threads[file], _ = strconv.ParseUint(fields[1], 10, 64)
		}
	}
	return threads
}

// longest is the longest time that one thread has waited between two looks.
func longest(before, after map[string]uint64) time.Duration {
	var most uint64
	for thread, ns := range after {
		if ns > before[thread] {
			most = max(most, ns-before[thread])
		}
	}
	return time.Duration(most)
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
