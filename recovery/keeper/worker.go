package keeper

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// worker is the process of the day.
type worker struct {
	pid     int
	started time.Time
	greeted time.Time // zero: no hello yet
	control *source
	out     []packet // control messages the socket has no room for yet

	brokenAt   time.Time // it closed a socket it must serve
	quitAt     time.Time // SIGQUIT was sent
	killed     bool      // SIGKILL was sent
	distrusted bool      // it wrote garbage: nothing of it is read any more
	hung       bool
	leaves     []protocol.Message // calls by which it asked the keeper to leave, unanswered

	ping     *request // whom the unanswered ping is about; nil: none is out
	pingAt   time.Time
	pingNext uint64
	look     look // at a worker whose pong is late
}

// serving says that the worker is to be given work.
func (w *worker) serving() bool {
	return !w.greeted.IsZero() && w.quitAt.IsZero() && !w.killed
}

// restart decides when there is a worker.
type restart struct {
	needed bool // something came that a worker must see
	idle   bool // the last one had nothing to do
	short  int  // lives in a row that were too short
	killed bool // the last of them was ended by somebody else: it may have been getting on well
	died   time.Time
}

// tendWorker starts a worker when it is time, and ends one that is of no use.
func (k *keeper) tendWorker() {
	w := k.worker
	if w == nil {
		if k.restart.idle && !k.restart.needed || !k.leaving.IsZero() && k.oldest() == nil {
			return
		}
		if k.due(k.restart.died.Add(k.pause())) {
			k.start()
		}
		return
	}
	switch {
	case w.killed:
	case !w.quitAt.IsZero():
		if k.due(w.quitAt.Add(k.Kill)) {
			k.kill("it did not end by SIGQUIT")
		}
	case w.greeted.IsZero() && k.due(w.started.Add(k.Hello)):
		k.kill("it said no hello")
	case !w.brokenAt.IsZero() && k.due(w.brokenAt.Add(k.Broken)):
		k.kill("it closed a socket that it must serve")
	}
}

// pause is how long to wait between the last worker's end and the next start.
func (k *keeper) pause() time.Duration {
	if k.restart.short == 0 {
		return 0
	}
	limit := k.BackoffMax
	switch {
	case k.owing() && k.restart.killed:
		limit = k.BackoffKilled
	case k.owing():
		limit = k.BackoffOwed
	}
	return min(limit, k.Backoff<<min(k.restart.short-1, 20))
}

// owing says that somebody waits for the next worker.
func (k *keeper) owing() bool {
	for _, c := range k.conns {
		if len(c.pending) > 0 {
			return true
		}
	}
	return k.exits.live > 0
}

func (k *keeper) start() {
	k.restart.needed, k.restart.idle, k.restart.killed = false, false, false
	k.clearMarks()
	k.restart.died = k.now // of this attempt, should it fail
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		k.restart.short++
		k.log("error", "no control channel for a worker: %v", err)
		return
	}
	defer unix.Close(pair[1])
	w := &worker{started: k.now}
	if w.control, err = k.poll.add(pair[0], unix.EPOLLIN, k.controlReady); err == nil {
		w.pid, err = syscall.ForkExec(k.Config.Worker, []string{k.Config.Worker, "worker"}, &syscall.ProcAttr{
			Dir:   "/",
			Env:   k.Env,
			Files: []uintptr{uintptr(k.null), uintptr(k.null), uintptr(k.Log), uintptr(pair[1])},
			// No session of its own: once its leader is dead the kernel hangs up (SIGHUP) every runtime that somebody
			// has stopped, as their new parent, the keeper, would be of another session (setpgid(2), orphaned groups).
			Sys: &syscall.SysProcAttr{Setpgid: true},
		})
	}
	if err != nil {
		k.restart.short++
		k.log("error", "starting %s: %v", k.Config.Worker, err)
		if w.control != nil {
			k.poll.remove(w.control)
		}
		unix.Close(pair[0])
		return
	}
	k.worker = w
	crash.Here("keeper-worker", "", crash.AfterFork)
}

// hello begins the service of a worker: it is welcomed, gets every connection,
// and with flushControl every exit that is not acknowledged.
func (k *keeper) hello(m protocol.Message) {
	if m.Protocol != protocol.Version {
		k.log("error", "worker %s speaks protocol %d, this keeper %d: install the two from one release", m.Version, m.Protocol, protocol.Version)
		k.garbage("its protocol is another one")
		return
	}
	crash.Here("keeper-worker", "", crash.AfterHello)
	k.worker.greeted = k.now
	k.exits.rewind()
	k.welcome()
	for _, c := range k.conns {
		k.connect(c)
	}
}

// welcome may take several packets, for the names of the stored descriptors.
func (k *keeper) welcome() {
	m := protocol.Message{
		Type: protocol.Welcome, Protocol: protocol.Version, Version: k.Version,
		KeeperPID: uint64(unix.Getpid()), Address: k.address, Namespace: k.Namespace, Group: k.Group,
		ShutdownWanted: k.shutdownWanted, Oldest: k.oldestNumber(),
	}
	size := 0
	for name := range k.store {
		if size += len(name) + 4; size > protocol.MaxPacket/2 {
			m.More = true
			k.send(m, -1)
			m.More, m.Names, size = false, nil, len(name)
		}
		m.Names = append(m.Names, name)
	}
	k.send(m, -1)
}

// broken notes that a socket of the worker has ended. Mostly it is about to be
// reaped; else tendWorker ends it.
func (k *keeper) broken() {
	if k.worker.brokenAt.IsZero() {
		k.worker.brokenAt = k.now
	}
}

// garbage ends a worker that wrote what no worker of this protocol writes.
func (k *keeper) garbage(what string) {
	w := k.worker
	w.distrusted = true
	k.poll.remove(w.control)
	for _, c := range k.conns {
		if c.mirror != nil {
			k.poll.remove(c.mirror)
		}
	}
	k.kill("not to be trusted: " + what)
}

func (k *keeper) kill(why string) {
	if k.worker.killed {
		return
	}
	k.worker.killed = true
	k.log("error", "worker %d killed: %s", k.worker.pid, why)
	_ = unix.Kill(k.worker.pid, unix.SIGKILL)
}
