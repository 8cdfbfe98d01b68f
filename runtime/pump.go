package runtime

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	spliceSize   = 1 << 16 // bytes asked for at once: a pipe's usual capacity
	fallbackSize = 1 << 12 // bytes in user memory where a terminal cannot be spliced
	stallDelay   = 10 * time.Millisecond
)

// pump moves bytes from one descriptor to another until the source ends. Both are
// non-blocking and known to Go's poller, so a waiting pump costs a goroutine and no
// thread, and never holds a pipe's lock while it waits: a blocking splice does, and
// puts whoever opens or writes the other end into uninterruptible sleep.
//
// Between pipes splice moves buffers under both pipes' locks; from and to a terminal
// it moves bytes within one system call. Either way a worker that is killed leaves a
// byte in exactly one of the two.
type pump struct {
	src, dst *os.File
	in, out  syscall.RawConn // of src and dst, set by run
	// gone is nil unless src is a terminal. A terminal without an open slave reads EIO,
	// which is its end only once the process is gone: init systems close and reopen
	// /dev/console. The caller wakes a waiting pump with a read deadline in the past.
	gone func() bool
	// splice is unix.Splice but in tests.
	splice func(src, dst int) (int, error)
	held   []byte // read and not yet written; see through

	// begin and moved are nil unless dst is a stage (see appender): called first of all,
	// and after each splice.
	begin, moved func() error

	idle atomic.Bool // it waits for the source, and moves nothing
}

// run returns nil at the end of the source, os.ErrClosed when one of the files was
// closed under it, unix.EPIPE when nobody reads the destination any more.
func (p *pump) run() error {
	p.in, p.out = rawConn(p.src), rawConn(p.dst)
	if p.splice == nil {
		p.splice = splice
	}
	if p.begin != nil {
		if err := p.begin(); err != nil {
			return err
		}
	}
	if err := p.arrived(); err != nil { // what an earlier worker has moved
		return err
	}
	stalls, memory := 0, false
	for {
		n, err := p.move()
		switch {
		case err == nil && n > 0:
			stalls = 0
			if err := p.arrived(); err != nil {
				return err
			}
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if err := p.awaitRoom(&stalls); err != nil {
				return err
			}
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := p.src.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		case errors.Is(err, unix.EIO) && p.gone != nil:
			return nil
		case errors.Is(err, unix.EINVAL) && !memory:
			memory = true
			p.splice = p.through
		default:
			return err
		}
	}
}

func (p *pump) arrived() error {
	if p.moved == nil {
		return nil
	}
	return p.moved()
}

// move waits for the source to have something and splices once. EAGAIN means that the
// destination is full.
func (p *pump) move() (n int, err error) {
	waitErr := p.in.Read(func(src uintptr) (done bool) {
		p.idle.Store(false)
		defer func() { p.idle.Store(!done) }()
		// Reading an empty terminal waits for the kernel's flush worker, and splice would do so
		// with the fifo's lock in hand. poll waits for it too, but holds nothing.
		if p.gone != nil && len(p.held) == 0 && !ready(int(src), unix.POLLIN) {
			return false
		}
		if closed := p.out.Control(func(dst uintptr) { n, err = p.splice(int(src), int(dst)) }); closed != nil {
			n, err = 0, closed
		}
		switch {
		case errors.Is(err, unix.EAGAIN):
			return len(p.held) > 0 || ready(int(src), unix.POLLIN)
		case errors.Is(err, unix.EIO) && p.gone != nil:
			return p.gone()
		}
		return true
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// awaitRoom waits until the destination takes more. Where it says it does and splice
// disagrees (a terminal whose buffers are being flushed), a pause keeps the pump from
// spinning.
func (p *pump) awaitRoom(stalls *int) error {
	waited := false
	err := p.out.Write(func(dst uintptr) bool {
		if ready(int(dst), unix.POLLOUT) {
			return true
		}
		waited = true
		return false
	})
	if waited {
		*stalls = 0
	} else if *stalls++; *stalls > 3 {
		time.Sleep(stallDelay)
	}
	return err
}

// through is splice by way of user memory, where there is no splice: for a terminal
// that nobody reads, whose bytes go to /dev/null, and for kernels that cannot splice
// terminals (5.10 as first released, and nothing else known). There a worker killed
// between its read and its write loses at most fallbackSize bytes.
func (p *pump) through(src, dst int) (int, error) {
	if len(p.held) == 0 {
		buffer := make([]byte, fallbackSize)
		n, err := unix.Read(src, buffer)
		if n <= 0 {
			return 0, err
		}
		p.held = buffer[:n]
	}
	n, err := unix.Write(dst, p.held)
	if err != nil {
		return 0, err
	}
	p.held = p.held[n:]
	return n, nil
}

func splice(src, dst int) (int, error) {
	n, err := unix.Splice(src, nil, dst, nil, spliceSize, unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	return int(n), err
}
