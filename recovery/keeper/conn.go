package keeper

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// conn is a connection of containerd and its mirror, the socket pair whose other
// end the worker of the day has.
type conn struct {
	k  *keeper
	id uint64
	at time.Time

	client  *source
	gone    bool // client is closed
	in      protocol.Assembler
	out     buffer     // whole response frames
	heard   bool       // a frame has come
	acted   bool       // a request that does not only ask has come
	stream  uint32     // highest stream so far
	pending []*request // unanswered, in order of arrival, so of streams and numbers
	bytes   int        // of pending

	mirror *source // nil: no worker has it
	back   protocol.Assembler
	to     buffer // the frame that is being handed over
	sent   int    // pending[:sent] were handed to this worker, the last one wholly if to is empty
}

func newConn(k *keeper, id uint64, fd int) *conn {
	c := &conn{k: k, id: id, at: k.now}
	c.in.Limit = protocol.MaxRequest
	c.back.Limit = protocol.MaxFrame
	return c
}

// full says that the client has to wait: for answers, or with taking them.
func (c *conn) full() bool {
	return c.bytes > c.k.Pending || c.out.size() > c.k.Answers
}

// clientReady moves bytes from and to containerd.
func (c *conn) clientReady(events uint32) {
	if events&unix.EPOLLOUT != 0 && !c.flush() {
		return
	}
	switch {
	case !c.full():
		c.readClient()
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		c.close()
	default:
		c.listen()
	}
}

func (c *conn) readClient() {
	n, ok := read(c.client.fd, c.k.scratch[:])
	switch {
	case !ok:
		c.listen()
		return
	case n == 0:
		c.close()
		return
	}
	c.in.Write(c.k.scratch[:n])
	for {
		f, ok, err := c.in.Next()
		if err != nil {
			c.malformed(err.Error())
			return
		}
		if !ok {
			break
		}
		if !c.take(f) {
			return
		}
	}
	if c.flush() {
		c.push()
	}
}

// take judges one frame of the client; false means the connection is closed.
func (c *conn) take(f protocol.Frame) bool {
	_, again := c.find(f.Stream)
	c.heard, c.k.heard = true, true
	switch {
	case again || f.Type != protocol.FrameRequest && f.Type != protocol.FrameData:
		c.malformed((&protocol.MalformedError{Header: f.Header}).Error())
		return false
	case f.Type == protocol.FrameData || f.Flags != 0:
		c.refuse(f, protocol.CodeUnimplemented, "perdure: streams are not supported")
	case f.Oversize:
		c.refuse(f, protocol.CodeResourceExhausted, "perdure: request longer than 4 MiB less 512 bytes")
	case f.Stream%2 == 0 || f.Stream <= c.stream:
		c.refuse(f, protocol.CodeInvalidArgument, "perdure: stream ids must be odd and ascending")
	default:
		c.request(f)
	}
	if f.Type == protocol.FrameRequest {
		c.stream = max(c.stream, f.Stream)
	}
	return true
}

func (c *conn) request(f protocol.Frame) {
	r, err := c.k.number(f)
	if err != nil {
		c.refuse(f, protocol.CodeInvalidArgument, "perdure: "+err.Error())
		return
	}
	if !c.acted && !r.asks {
		c.acted = true
		c.k.keepPromise(c.at)
	}
	c.pending = append(c.pending, r)
	c.bytes += r.size()
	crash.Here("keeper-request", "", crash.AfterNumber)
}

func (c *conn) refuse(f protocol.Frame, code uint64, message string) {
	c.out.add(protocol.AppendStatus(nil, f.Stream, code, message))
}

func (c *conn) malformed(what string) {
	c.k.log("warning", "connection %d closed: %s", c.id, what)
	c.close()
}

// find returns where the pending request of a stream is.
func (c *conn) find(stream uint32) (int, bool) {
	return slices.BinarySearchFunc(c.pending, stream, func(r *request, s uint32) int {
		return int(int64(r.stream) - int64(s))
	})
}

// drop takes an answered request off the list.
func (c *conn) drop(i int) {
	r := c.pending[i]
	c.bytes -= r.size()
	c.pending = slices.Delete(c.pending, i, i+1)
	if i < c.sent {
		c.sent--
	}
	if len(c.pending) == 0 {
		c.pending = nil
	}
	c.k.finish(r)
}

// flush writes answers; false means the connection is closed. Whoever was kept
// waiting by untaken answers goes on.
func (c *conn) flush() bool {
	if c.gone {
		return false
	}
	if err := c.out.flush(c.client.fd); err != nil {
		c.close()
		return false
	}
	c.listen()
	return true
}

// listen sets what to wait for on both sockets.
func (c *conn) listen() {
	var mask uint32
	if !c.full() {
		mask |= unix.EPOLLIN
	}
	if c.out.size() > 0 {
		mask |= unix.EPOLLOUT
	}
	c.k.poll.want(c.client, mask)
	if c.mirror == nil {
		return
	}
	mask = 0
	if c.out.size() <= c.k.Answers {
		mask |= unix.EPOLLIN
	}
	if c.to.size() > 0 {
		mask |= unix.EPOLLOUT
	}
	c.k.poll.want(c.mirror, mask)
}

// close forgets the connection: nobody is there to be answered. The worker sees
// the end of its mirror and gives up what it can.
func (c *conn) close() {
	c.gone = true
	c.k.poll.remove(c.client)
	unix.Close(c.client.fd)
	c.unmirror()
	for _, r := range c.pending {
		c.k.finish(r)
	}
	c.pending, c.bytes = nil, 0
	if !c.heard {
		c.k.promises = append(c.k.promises, c.at)
	}
	c.k.conns = slices.DeleteFunc(c.k.conns, func(other *conn) bool { return other == c })
}
