package runtime

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// output is stdout or stderr of one process: copied from its pipe or terminal into the
// client's fifo, which is then held until the client has read it all.
//
// The fifo is open for reading as well: without a reader nothing is killed by SIGPIPE,
// and what was written waits for one.
type output struct {
	io     *IO
	name   string
	path   string        // empty: a terminal nobody reads
	copied chan struct{} // closed when there is nothing left to copy
	err    error         // of the copying; read after copied is closed
}

// copyPipe copies until every holder of the pipe's other end is gone.
func (o *output) copyPipe(pipe, fifo *os.File) {
	o.io.do(func() {
		o.copy(&pump{src: pipe, dst: fifo}, o.name)
		o.hold(fifo)
	}, pipe, fifo)
}

// copyTerminal copies until the process and all users of its terminal are gone.
func (o *output) copyTerminal(master, fifo *os.File) {
	o.io.do(func() {
		o.copy(&pump{src: master, dst: fifo, gone: o.io.hasEnded}, nameConsole)
		o.hold(fifo)
	}, master, fifo)
}

// copy moves everything there is, then lets the source go.
func (o *output) copy(p *pump, source string) {
	defer close(o.copied)
	err := o.io.pump(source, p)
	if o.io.stopping() {
		return
	}
	if !errors.Is(err, unix.EPIPE) {
		o.err = err
	}
	_ = p.src.Close()
	o.err = errors.Join(o.err, o.io.d.Drop(o.io.key(source)))
}

// hold keeps the fifo until the client has read it. It owns fifo.
func (o *output) hold(fifo *os.File) {
	defer closeAll(fifo)
	if o.path == "" || !awaitDrained(fifo, o.io.stop) || o.io.stopping() {
		return
	}
	_ = o.io.d.Drop(o.io.key(o.name + nameFifo)) // where it fails the keeper is gone, or Close does it
}

// release begins to hold a fifo the process itself has written, after its end.
func (o *output) release() {
	fifo, err := o.io.fetch(o.name + nameFifo)
	if fifo == nil || err != nil {
		return
	}
	o.io.do(func() { o.hold(fifo) }, fifo)
}

// sink is the client's fifo as the keeper has it, or /dev/null for a terminal nobody
// reads.
func (o *output) sink() (*os.File, error) {
	if o.path == "" {
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	fifo, err := o.io.fetchPollable(o.name + nameFifo)
	if fifo == nil && err == nil {
		err = errors.New("the keeper holds a terminal but no " + o.name + nameFifo + " for it")
	}
	return fifo, err
}

// resume goes on with a stream that is no terminal.
func (o *output) resume() error {
	if o.io.direct() {
		close(o.copied)
		return nil
	}
	fifo, err := o.io.fetchPollable(o.name + nameFifo)
	if err != nil {
		return err
	}
	if fifo == nil {
		close(o.copied)
		return nil
	}
	pipe, err := o.io.fetchPollable(o.name)
	if err != nil {
		closeAll(fifo)
		return err
	}
	if pipe == nil {
		close(o.copied)
		o.io.do(func() { o.hold(fifo) }, fifo)
		return nil
	}
	o.copyPipe(pipe, fifo)
	return nil
}
