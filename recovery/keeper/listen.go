package keeper

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
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
			k.tryLater("accepting a connection: %v", err)
			return
		default:
			k.admit(fd)
		}
	}
}

// tryLater notes that a limit, mostly that of open files, was met.
func (k *keeper) tryLater(format string, args ...any) {
	k.log("error", format+"; trying again in a moment", args...)
	k.retryAt = k.now.Add(100 * time.Millisecond)
	if k.listener != nil {
		k.poll.want(k.listener, 0)
	}
}

// tendRetry accepts again after tryLater, and mirrors what has no mirror.
func (k *keeper) tendRetry() {
	if k.retryAt.IsZero() || !k.due(k.retryAt) {
		return
	}
	k.retryAt = time.Time{}
	if k.listener != nil {
		k.poll.want(k.listener, unix.EPOLLIN)
	}
	for _, c := range k.conns {
		if c.mirror == nil {
			k.connect(c)
		}
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
	crash.Here("keeper-accept", "", crash.AfterAccept)
	k.connect(c)
}
