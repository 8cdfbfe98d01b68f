package keeper

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// source is a descriptor the loop listens to. Every one has a number of its own
// that is never used again, so that an event which was already fetched for a
// descriptor closed meanwhile meets nobody.
type source struct {
	fd     int
	number int32
	mask   uint32
	ready  func(events uint32)
}

type poller struct {
	fd      int
	last    int32
	sources map[int32]*source
	events  [32]unix.EpollEvent
}

func newPoller() (poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return poller{fd: fd, sources: map[int32]*source{}}, err
}

// add listens to fd, level-triggered unless mask says otherwise. The error is
// epoll's: EPERM for what cannot be polled, such as a plain file.
func (p *poller) add(fd int, mask uint32, ready func(events uint32)) (*source, error) {
	p.last++
	s := &source{fd: fd, number: p.last, mask: mask, ready: ready}
	if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: mask, Fd: s.number}); err != nil {
		return nil, err
	}
	p.sources[s.number] = s
	return s, nil
}

func (p *poller) want(s *source, mask uint32) {
	if s.mask == mask || p.sources[s.number] == nil {
		return
	}
	s.mask = mask
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: mask, Fd: s.number})
}

// remove stops listening; the descriptor stays open. It must come before the
// descriptor is closed: epoll goes on reporting a description that others hold.
func (p *poller) remove(s *source) {
	if p.sources[s.number] == nil {
		return
	}
	delete(p.sources, s.number)
	_ = unix.EpollCtl(p.fd, unix.EPOLL_CTL_DEL, s.fd, nil)
}

// wait returns how many events there are for dispatch. A negative timeout waits
// for ever.
func (p *poller) wait(timeout time.Duration) (int, error) {
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.EpollWait(p.fd, p.events[:], ms)
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return max(0, n), err
}

// dispatch calls the sources of the first n events.
func (p *poller) dispatch(n int) {
	for _, e := range p.events[:n] {
		if s := p.sources[e.Fd]; s != nil {
			s.ready(e.Events)
		}
	}
}

// read fills p from a non-blocking descriptor. ok false means that nothing is
// there now; 0 bytes with ok is the end, for whatever reason.
func read(fd int, p []byte) (n int, ok bool) {
	for {
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, false
		case err != nil:
			return 0, true
		default:
			return n, true
		}
	}
}
