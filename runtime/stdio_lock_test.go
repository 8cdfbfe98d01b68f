package runtime

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// fill writes to a non-blocking descriptor until the copying stands still behind it.
func fill(t *testing.T, f *os.File, full func() bool) (total int) {
	t.Helper()
	await(t, "nothing more fits", func() bool {
		for {
			var n int
			err := control(f, func(fd int) (err error) {
				n, err = unix.Write(fd, make([]byte, 4096))
				return err
			})
			if errors.Is(err, unix.EAGAIN) {
				return full()
			}
			must(t, err)
			total += n
		}
	})
	return total
}

// While a stream stands still, whoever opens or asks the client's fifo must not wait
// for the pipe's lock: FIONREAD takes it.
func TestNoLockIsHeldWhileAStreamStandsStill(t *testing.T) {
	watchD(t)
	p := newPty(t)
	s := Stdio{Stdin: p.fifo("in"), Stdout: p.fifo("out"), Terminal: true}
	keeper := newStore(t)
	stdio := p.open(keeper, s)
	slave, err := pollable(p.slave())
	must(t, err)
	in, err := os.OpenFile(s.Stdin, os.O_WRONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	// probe asks for the bytes in a fifo and whether it takes more.
	type state struct {
		unread int
		full   bool
	}
	probe := func(path string) state {
		states := make(chan state, 1)
		go func() {
			f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Error(err)
			}
			defer f.Close()
			n, err := unread(f)
			if err != nil {
				t.Error(err)
			}
			states <- state{n, !ready(int(f.Fd()), unix.POLLOUT)}
		}()
		return within(t, "the lock of "+path, states)
	}
	for _, path := range []string{s.Stdin, s.Stdout} {
		if got := probe(path); got != (state{}) {
			t.Errorf("%s is idle, but has %+v", path, got)
		}
	}

	written := fill(t, in, func() bool { return probe(s.Stdin).full })
	must(t, slave.SetReadDeadline(deadline()))
	if _, err := io.CopyN(io.Discard, slave, int64(written)); err != nil {
		t.Errorf("stdin of %d bytes: %v", written, err)
	}

	written = fill(t, slave, func() bool { return probe(s.Stdout).full })
	out, err := os.OpenFile(s.Stdout, os.O_RDONLY|unix.O_NONBLOCK, 0)
	must(t, err)
	must(t, out.SetReadDeadline(deadline()))
	if _, err := io.CopyN(io.Discard, out, int64(written)); err != nil {
		t.Errorf("stdout of %d bytes: %v", written, err)
	}
	closeAll(slave, in, out)
	stdio.Exited()
	must(t, stdio.Drained(t.Context()))
}
