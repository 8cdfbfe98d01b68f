package keeper

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// accept takes what waits on the listening socket.
func (k *keeper) accept(uint32) {
	for range 64 {
		fd, _, err := unix.Accept4(k.Listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		case errors.Is(err, unix.EAGAIN):
			return
		case err != nil:
			k.log("error", "accepting a connection: %v; trying again in a moment", err)
			k.poll.want(k.listener, 0)
			k.acceptAfter = k.now.Add(100 * time.Millisecond)
			return
		default:
			k.admit(fd)
		}
	}
}

// tendListener listens again after accept met a limit.
func (k *keeper) tendListener() {
	if k.listener != nil && !k.acceptAfter.IsZero() && k.due(k.acceptAfter) {
		k.acceptAfter = time.Time{}
		k.poll.want(k.listener, unix.EPOLLIN)
	}
}

// admit makes a connection of fd, if its peer is of the keeper's own user: the
// mode of the socket says the same, but a descriptor can be passed on.
func (k *keeper) admit(fd int) {
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil || int(peer.Uid) != unix.Geteuid() {
		if err == nil {
			k.log("warning", "connection of pid %d refused: it is of user %d, not %d", peer.Pid, peer.Uid, unix.Geteuid())
		}
		unix.Close(fd)
		return
	}
	k.lastConn++
	c := newConn(k, k.lastConn, fd)
	if c.client, err = k.poll.add(fd, unix.EPOLLIN, c.clientReady); err != nil {
		k.log("error", "polling a connection: %v", err)
		unix.Close(fd)
		return
	}
	k.conns = append(k.conns, c)
	k.restart.needed = true
	k.connect(c)
}
