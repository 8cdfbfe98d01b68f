package keeper

import (
	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// connect gives the worker a new mirror of c, and with it everything that is
// unanswered, from the first request on: that is all there is to replay. Where
// that fails the connection waits: containerd takes its end for the shim's.
func (k *keeper) connect(c *conn) {
	if k.worker == nil || !k.worker.serving() {
		return
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		k.tryLater("giving the worker connection %d: %v", c.id, err)
		return
	}
	defer unix.Close(pair[1])
	if c.mirror, err = k.poll.add(pair[0], unix.EPOLLIN, c.mirrorReady); err != nil {
		unix.Close(pair[0])
		k.tryLater("polling the mirror of connection %d: %v", c.id, err)
		return
	}
	k.send(protocol.Message{Type: protocol.Conn, ID: c.id}, pair[1])
	c.push()
}

// unmirror takes the mirror away. Half a request or half a response goes with
// it; the request is pending still.
func (c *conn) unmirror() {
	if c.mirror == nil {
		return
	}
	c.k.poll.remove(c.mirror)
	unix.Close(c.mirror.fd)
	c.mirror, c.sent = nil, 0
	c.to.reset()
	c.back.Reset()
}

// push hands pending requests to the worker as far as it takes them.
func (c *conn) push() {
	if c.mirror == nil || !c.k.worker.serving() {
		return
	}
	for c.to.size() > 0 || c.sent < len(c.pending) {
		if c.to.size() == 0 {
			r := c.pending[c.sent]
			c.to.bytes = c.k.appendRequest(borrow(), r)
			if r.handed == 0 {
				r.fresh = c.k.now
			}
			r.handed++
			c.sent++
		}
		if err := c.to.flush(c.mirror.fd); err != nil {
			c.k.broken()
			c.k.poll.remove(c.mirror)
			return
		}
		if c.to.size() > 0 {
			break
		}
		crash.Here("keeper-request", "", crash.AfterForward)
	}
	c.listen()
}

// mirrorReady moves bytes from and to the worker.
func (c *conn) mirrorReady(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		c.push()
	}
	if c.mirror == nil {
		return
	}
	end := events&(unix.EPOLLHUP|unix.EPOLLERR) != 0
	if c.out.size() <= c.k.Answers {
		_, open := c.readMirror()
		end = !open
	}
	if end {
		// It dies, or has closed a connection that it must serve. What it wrote
		// before stays in the socket and is read when it is reaped.
		c.k.broken()
		c.k.poll.remove(c.mirror)
	}
}

// readMirror reads once, and passes whole responses on. It returns how many
// bytes there were, and whether the worker's end is open.
func (c *conn) readMirror() (n int, open bool) {
	n, ok := read(c.mirror.fd, c.k.scratch[:])
	if !ok || n == 0 {
		return 0, !ok
	}
	c.back.Write(c.k.scratch[:n])
	for {
		f, ok, err := c.back.Next()
		if err != nil {
			c.k.garbage(err.Error())
			return n, true
		}
		if !ok {
			break
		}
		if !c.respond(f) {
			c.k.garbage((&protocol.MalformedError{Header: f.Header}).Error())
			return n, true
		}
	}
	if c.flush() {
		crash.Here("keeper-answer", "", crash.AfterWrite)
	}
	return n, true
}

// respond passes a response on, if it is one, to a request that this worker has.
func (c *conn) respond(f protocol.Frame) bool {
	i, ok := c.find(f.Stream)
	if !ok || i >= c.whole() || f.Type != protocol.FrameResponse || f.Flags != 0 || f.Oversize {
		return false
	}
	crash.Here("keeper-answer", "", crash.AfterReceive)
	c.out.add(f.Raw)
	c.drop(i)
	return true
}

// whole is the number of pending requests that this worker has to the last byte.
func (c *conn) whole() int {
	if c.to.size() > 0 {
		return c.sent - 1
	}
	return c.sent
}

// drain reads what a dead worker has written; half a response is dropped.
func (c *conn) drain() {
	for c.mirror != nil && !c.k.worker.distrusted {
		if n, _ := c.readMirror(); n == 0 {
			return
		}
	}
}
