package client

import (
	"net"
	"sync"
)

// queue is an unbounded channel: put never blocks.
type queue[T any] struct {
	out  chan T
	mu   sync.Mutex
	more *sync.Cond
	list []T
	over bool
	quit chan struct{}
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{out: make(chan T), quit: make(chan struct{})}
	q.more = sync.NewCond(&q.mu)
	go q.pump()
	return q
}

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, item)
	q.more.Signal()
}

// close ends the queue; what nobody has taken yet is lost, which is right for a
// channel that has ended: the keeper tells it all again.
func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.over {
		q.over = true
		close(q.quit)
		q.more.Signal()
	}
}

func (q *queue[T]) next() (T, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) == 0 && !q.over {
		q.more.Wait()
	}
	var item T
	if q.over {
		return item, false
	}
	item, q.list = q.list[0], q.list[1:]
	return item, true
}

func (q *queue[T]) pump() {
	defer close(q.out)
	for {
		item, ok := q.next()
		if !ok {
			return
		}
		select {
		case q.out <- item:
		case <-q.quit:
			return
		}
	}
}

// Listener yields the connections of containerd, for a ttrpc server. Close
// ends it; connections that come later are kept for a listener to come.
func (c *Client) Listener() net.Listener {
	return &listener{conns: c.conns, closed: make(chan struct{}), address: c.welcome.Address}
}

type listener struct {
	conns   *queue[net.Conn]
	once    sync.Once
	closed  chan struct{}
	address string
}

// Accept returns net.ErrClosed after Close and when the keeper is gone.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn, ok := <-l.conns.out:
		if !ok {
			return nil, net.ErrClosed
		}
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *listener) Addr() net.Addr {
	return &net.UnixAddr{Name: l.address, Net: "unix"}
}
