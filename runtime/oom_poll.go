package runtime

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// OOMPoller calls whoever watches a cgroup when there is news of it. All watches of a
// worker share one epoll descriptor, which Go's own poller waits for: no thread, no
// timer.
type OOMPoller struct {
	epoll *os.File

	mu    sync.Mutex
	last  int32
	fired map[int32]func()
}

// NewOOMPoller makes a poller, for the life of the worker.
func NewOOMPoller() (*OOMPoller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that it is given to Go's poller
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &OOMPoller{epoll: os.NewFile(uintptr(fd), "oom poller"), fired: map[int32]func(){}}
	conn, err := p.epoll.SyscallConn()
	if err != nil {
		return nil, err
	}
	go func() {
		_ = conn.Read(func(fd uintptr) bool { return p.dispatch(int(fd)) })
	}()
	return p, nil
}

// Add calls fired, which must not block, whenever there is news of a watch, and at once if
// there is some already. What it returns ends that; call it before the watch is closed, or
// the keeper's duplicate goes on being reported.
func (p *OOMPoller) Add(w *OOMWatch, fired func()) (remove func(), err error) {
	p.mu.Lock()
	p.last++
	number := p.last
	p.fired[number] = fired
	p.mu.Unlock()
	f, events := w.ready()
	remove = func() {
		p.mu.Lock()
		delete(p.fired, number)
		p.mu.Unlock()
		_ = p.ctl(unix.EPOLL_CTL_DEL, f, nil)
	}
	// Edges: a count that is not read yet is told once.
	if err := p.ctl(unix.EPOLL_CTL_ADD, f, &unix.EpollEvent{Events: events | unix.EPOLLET, Fd: number}); err != nil {
		remove()
		return nil, fmt.Errorf("poll for OOM: %w", err)
	}
	if pending(f, int16(events)) { // the poller would miss it if the counter were read before it has looked
		go fired()
	}
	return remove, nil
}

func (p *OOMPoller) ctl(op int, f *os.File, event *unix.EpollEvent) error {
	return control(p.epoll, func(epoll int) error {
		return control(f, func(fd int) error { return unix.EpollCtl(epoll, op, fd, event) })
	})
}

// dispatch calls those that there is news for. It returns true, which would end the
// reading, only when the descriptor is of no use any more.
func (p *OOMPoller) dispatch(epoll int) (end bool) {
	var events [16]unix.EpollEvent
	for {
		n, err := unix.EpollWait(epoll, events[:], 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return true
		case n == 0:
			return false
		}
		for _, e := range events[:n] {
			p.mu.Lock()
			fired := p.fired[e.Fd]
			p.mu.Unlock()
			if fired != nil {
				fired()
			}
		}
	}
}
