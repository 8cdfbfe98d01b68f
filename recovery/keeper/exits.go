package keeper

import (
	"bytes"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// exit is a reaped child that no worker has acknowledged, or did just now.
type exit struct {
	seq    uint64
	start  uint64
	at     int64 // Unix nanoseconds
	pid    int32
	status uint32
	done   bool
}

func (e *exit) message() protocol.Message {
	return protocol.Message{
		Type: protocol.Exit, Seq: e.seq, Pid: uint64(e.pid), Start: e.start, Status: uint64(e.status), At: uint64(e.at),
	}
}

// exits is the queue of them, in the order of reaping.
type exits struct {
	list    []exit
	live    int // of list, not done
	sent    int // list[:sent] was sent to this worker
	last    uint64
	hold    bool
	watched map[int32]uint64 // pid to start time
}

func (x *exits) add(e exit) {
	x.last++
	e.seq = x.last
	x.list = append(x.list, e)
	x.live++
}

// next is the first exit that this worker was not told, nil if there is none.
func (x *exits) next() *exit {
	for ; x.sent < len(x.list); x.sent++ {
		if e := &x.list[x.sent]; !e.done {
			return e
		}
	}
	return nil
}

// rewind makes next begin again, for a new worker.
func (x *exits) rewind() { x.sent = 0 }

func (x *exits) watch(pid int, start uint64) {
	if x.watched == nil {
		x.watched = map[int32]uint64{}
	}
	x.watched[int32(pid)] = start
}

func (x *exits) acknowledge(seq uint64) {
	i, ok := slices.BinarySearchFunc(x.list, seq, func(e exit, seq uint64) int {
		switch {
		case e.seq < seq:
			return -1
		case e.seq > seq:
			return 1
		}
		return 0
	})
	if ok && !x.list[i].done {
		x.settle(&x.list[i])
		x.compact()
	}
}

func (x *exits) settle(e *exit) {
	e.done = true
	x.live--
	if start, ok := x.watched[e.pid]; ok && start == e.start {
		delete(x.watched, e.pid)
	}
}

// compact gives the room of settled exits back, once they are most of the list.
func (x *exits) compact() {
	if x.live == 0 {
		x.list, x.sent = nil, 0
		return
	}
	if len(x.list) < 2*x.live+64 {
		return
	}
	var kept []exit
	sent := 0
	for i, e := range x.list {
		if e.done {
			continue
		}
		if i < x.sent {
			sent++
		}
		kept = append(kept, e)
	}
	x.list, x.sent = kept, sent
}

// bound drops the oldest exits that nobody watches, a sixteenth at a time, when
// there are more than limit. It returns how many.
func (x *exits) bound(limit int) (dropped int) {
	if x.hold || x.live <= limit {
		return 0
	}
	for i := 0; i < len(x.list) && x.live > limit-limit/16; i++ {
		e := &x.list[i]
		if start, ok := x.watched[e.pid]; e.done || ok && start == e.start {
			continue
		}
		x.settle(e)
		dropped++
	}
	x.compact()
	return dropped
}

// reap takes every dead child: the keeper's one place that waits. A child is
// looked at while it is a zombie, when its start time can still be read.
func (k *keeper) reap() {
	for range 1024 {
		pid := deadChild()
		if pid == 0 {
			return
		}
		start := startTime(pid)
		var status unix.WaitStatus
		if reaped, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil || reaped != pid {
			return
		}
		if k.worker != nil && pid == k.worker.pid {
			crash.Here("keeper-death", "", crash.AfterReap)
			k.died(status)
			continue
		}
		crash.Here("keeper-exit", "", crash.AfterReap)
		k.exits.add(exit{pid: int32(pid), start: start, status: uint32(status), at: time.Now().UnixNano()})
		k.restart.needed = true
		crash.Here("keeper-exit", "", crash.AfterQueue)
		if n := k.exits.bound(k.Limits.Exits); n > 0 {
			k.log("warning", "%d exits that nobody watched were dropped: more than %d were not acknowledged", n, k.Limits.Exits)
		}
	}
	ring(k.reapFD) // others have their turn first
}

// deadChild returns the pid of a child that is a zombie, and leaves it one.
func deadChild() int {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 0
		}
		// siginfo_t of SIGCHLD: signo, errno, code, (padding to the alignment of
		// a pointer,) pid. It stays zero where no child is dead.
		offset := (3*unsafe.Sizeof(info.Code) + unsafe.Sizeof(uintptr(0)) - 1) &^ (unsafe.Sizeof(uintptr(0)) - 1)
		return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), offset)))
	}
}

// startTime is field 22 of /proc/pid/stat, in clock ticks since boot; 0 where it
// cannot be read. The command name may contain anything, so fields are counted
// from its last parenthesis.
func startTime(pid int) uint64 {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	var line [2048]byte // 51 numbers and a name of at most 64 bytes are less
	n, _ := read(fd, line[:])
	number := 3 // of the first one after the name
	for field := range bytes.FieldsSeq(line[bytes.LastIndexByte(line[:n], ')')+1 : n]) {
		if number == 22 {
			start, _ := strconv.ParseUint(string(field), 10, 64)
			return start
		}
		number++
	}
	return 0
}
