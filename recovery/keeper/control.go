package keeper

import (
	"errors"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// packet is a control message that waits for room in the socket.
type packet struct {
	bytes []byte
	fd    int // own duplicate; -1: none
}

func (p packet) close() {
	giveBack(p.bytes)
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
}

// maxUnread bounds the messages a worker may leave unread; then it is not
// listened to until it reads.
const maxUnread = 1024

// send sends m now, or when the worker has room. fd stays the caller's.
func (k *keeper) send(m protocol.Message, fd int) {
	w := k.worker
	p := packet{m.Append(borrow()), fd}
	if len(w.out) == 0 && k.transmit(p) {
		giveBack(p.bytes)
		return
	}
	if fd >= 0 {
		var err error
		if p.fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3); err != nil {
			p.fd = -1 // the client reports that no descriptor arrived
		}
	}
	w.out = append(w.out, p)
}

// transmit reports whether the packet is off the keeper's hands.
func (k *keeper) transmit(p packet) bool {
	var rights []byte
	if p.fd >= 0 {
		rights = unix.UnixRights(p.fd)
	}
	for {
		err := unix.Sendmsg(k.worker.control.fd, p.bytes, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			return true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return false
		default:
			k.broken()
			return true
		}
	}
}

// flushControl sends what waits: messages, then exits.
func (k *keeper) flushControl() {
	w := k.worker
	if w == nil || w.distrusted {
		return
	}
	for len(w.out) > 0 && k.transmit(w.out[0]) {
		w.out[0].close()
		w.out = w.out[1:]
	}
	if w.serving() {
		for e := k.exits.next(); e != nil && len(w.out) == 0; e = k.exits.next() {
			k.send(e.message(), -1)
			k.exits.sent++
			crash.Here("keeper-exit", "", crash.AfterTell)
		}
	}
	var mask uint32
	if len(w.out) < maxUnread {
		mask |= unix.EPOLLIN
	}
	if len(w.out) > 0 {
		mask |= unix.EPOLLOUT
	}
	k.poll.want(w.control, mask)
}

// controlReady reads the worker's messages; settle writes ours.
func (k *keeper) controlReady(events uint32) {
	w := k.worker
	for i := 0; i < 64 && len(w.out) < maxUnread && !w.distrusted; i++ {
		if !k.readControl() {
			break
		}
	}
	if w.brokenAt.IsZero() && events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 && len(w.out) >= maxUnread {
		k.broken()
	}
	if !w.brokenAt.IsZero() {
		k.poll.remove(w.control)
	}
}

// readControl handles one message; false means there is none, or no more.
func (k *keeper) readControl() bool {
	var rights [64]byte
	n, rn, flags, err := recvmsg(k.worker.control.fd, k.scratch[:], rights[:])
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err != nil || n == 0 {
		k.broken()
		return false
	}
	fds := descriptors(rights[:rn])
	m, err := protocol.Parse(k.scratch[:n])
	switch {
	case err != nil || flags&unix.MSG_TRUNC != 0:
		k.garbage(protocol.ErrMessage.Error())
	case len(fds) > 1 || len(fds) == 1 && m.Type != protocol.Store && m.Type != protocol.Open:
		k.garbage("descriptors where none belong")
	case (m.Type == protocol.Hello) != k.worker.greeted.IsZero():
		k.garbage("hello missing or said twice")
	default:
		fd := -1
		if len(fds) == 1 {
			fd, fds = fds[0], nil
		}
		k.control(m, fd)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
	return !k.worker.distrusted
}

// control carries out one message; fd is Store's or Open's, and taken over.
func (k *keeper) control(m protocol.Message, fd int) {
	switch m.Type {
	case protocol.Hello:
		k.hello(m)
	case protocol.Store:
		failure := k.keep(m.Name, fd)
		crash.Here("keeper-store", "", crash.AfterKeep)
		k.reply(m.Call, failure, -1)
		crash.Here("keeper-store", "", crash.AfterReply)
	case protocol.Open:
		failure := k.openStored(m.Name, fd)
		crash.Here("keeper-open", "", crash.AfterKeep)
		k.reply(m.Call, failure, -1)
	case protocol.Fetch:
		k.fetch(m)
	case protocol.Drop:
		k.dropAfter(m.Name, m.After)
		k.reply(m.Call, "", -1)
	case protocol.Accept:
		k.acceptStored(m)
	case protocol.Wake:
		if s := k.store[m.Name]; s != nil {
			s.wake = uint32(m.Mask)
		}
	case protocol.ExitAck:
		k.exits.acknowledge(m.Seq)
		crash.Here("keeper-exit", "", crash.AfterAck)
	case protocol.Hold:
		k.exits.hold = m.On
	case protocol.Watch:
		k.exits.watch(int(m.Pid), m.Start)
	case protocol.Pong:
		k.pong(m.Number)
	case protocol.WantShutdown:
		k.shutdownWanted = true
		k.reply(m.Call, "", -1)
	case protocol.Leave:
		k.leave(m)
	default:
		k.garbage("a message only the keeper sends")
	}
}

func (k *keeper) reply(call uint64, failure string, fd int) {
	k.send(protocol.Message{Type: protocol.Reply, Call: call, Error: failure}, fd)
}

// recvmsg reads one packet. A worker that has died with packets of ours unread is reported first, once, as ECONNRESET (Linux,
// unix_release_sock and sock_error); what it has said before is there after that.
func recvmsg(fd int, packet, rights []byte) (n, rn, flags int, err error) {
	for {
		n, rn, flags, _, err = unix.Recvmsg(fd, packet, rights, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNRESET) {
			return n, rn, flags, err
		}
	}
}

// descriptors takes what came by SCM_RIGHTS.
func descriptors(rights []byte) []int {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	var all []int
	for i := range messages {
		if fds, err := unix.ParseUnixRights(&messages[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}
