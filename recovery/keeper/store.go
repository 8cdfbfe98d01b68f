package keeper

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// stored is a descriptor kept for workers to come.
type stored struct {
	fd   int
	wake uint32  // what to start a worker for after this one; 0: nothing
	mark *source // waits for it, while there is no worker
}

// keep stores fd, which it takes over, and returns the reply's text.
func (k *keeper) keep(name string, fd int) string {
	if fd < 0 {
		return "no descriptor arrived; the keeper's limit of open files may be reached"
	}
	if name == "" {
		unix.Close(fd)
		return "a stored descriptor needs a name"
	}
	if old := k.store[name]; old != nil {
		k.discard(old)
	}
	k.store[name] = &stored{fd: fd}
	return ""
}

func (k *keeper) discard(s *stored) {
	if s.mark != nil {
		k.poll.remove(s.mark)
	}
	unix.Close(s.fd)
}

func (k *keeper) fetch(m protocol.Message) {
	s := k.store[m.Name]
	if s == nil {
		k.reply(m.Call, protocol.NotStored, -1)
		return
	}
	k.reply(m.Call, "", s.fd)
}

// dropAfter drops once nobody will be given the request of this number again:
// it is answered, or its client is gone. That is now if it is not pending.
func (k *keeper) dropAfter(prefix string, number uint64) {
	for _, c := range k.conns {
		for _, r := range c.pending {
			if r.number == number {
				r.drops = append(r.drops, prefix)
				return
			}
		}
	}
	k.drop(prefix)
	crash.Here("keeper-drop", "", crash.AfterDrop)
}

// drop closes the descriptor of that name and everything below it.
func (k *keeper) drop(prefix string) {
	for name, s := range k.store {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			k.discard(s)
			delete(k.store, name)
		}
	}
}

// openStored opens a fifo that came as a descriptor without access (O_PATH), and
// keeps it before anybody else has it open: an end that only a worker held
// would be closed with the worker, which the fifo's other side takes for the
// end. A fifo opened for both directions never blocks (fifo(7)). fd is taken over.
func (k *keeper) openStored(name string, fd int) string {
	if fd < 0 {
		return k.keep(name, fd)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		return "only a fifo can be opened"
	}
	opened, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	return k.keep(name, opened)
}

// acceptStored accepts on a stored listener and keeps the connection before the
// worker hears of it: a worker killed now leaves it here under its name.
func (k *keeper) acceptStored(m protocol.Message) {
	listener := k.store[m.Listener]
	if listener == nil {
		k.reply(m.Call, protocol.NotStored, -1)
		return
	}
	// A blocking listener would let a worker stop the keeper.
	err := unix.SetNonblock(listener.fd, true)
	fd := -1
	if err == nil {
		fd, _, err = unix.Accept4(listener.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	}
	switch {
	case err == unix.EAGAIN:
		k.reply(m.Call, protocol.NothingToAccept, -1)
		return
	case err != nil:
		k.reply(m.Call, err.Error(), -1)
		return
	}
	if failure := k.keep(m.Name, fd); failure != "" {
		k.reply(m.Call, failure, -1)
		return
	}
	crash.Here("keeper-accept-stored", "", crash.AfterKeep)
	k.reply(m.Call, "", fd)
}

// armMarks waits for what the worker that has left wanted to be started for.
func (k *keeper) armMarks() {
	for name, s := range k.store {
		if s.wake == 0 {
			continue
		}
		var err error
		s.mark, err = k.poll.add(s.fd, s.wake|unix.EPOLLONESHOT, func(uint32) {
			crash.Here("keeper-wake", "", crash.AfterWake)
			k.restart.needed = true
		})
		if err != nil {
			k.log("warning", "descriptor %s cannot be waited for: %v", name, err)
			k.restart.needed = true
		}
	}
}

// clearMarks forgets the marks: a worker that lives looks for itself.
func (k *keeper) clearMarks() {
	for _, s := range k.store {
		s.wake = 0
		if s.mark != nil {
			k.poll.remove(s.mark)
			s.mark = nil
		}
	}
}
