package runtime

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// opening collects what OpenIO makes. Nothing is given to the keeper before all of it
// is there: an earlier attempt's descriptors hold the client's fifos until these do.
type opening struct {
	io     *IO
	stored []storing
	begin  []func() // starts the copying
	spare  []*os.File
}

type storing struct {
	name string
	file *os.File
}

func (o *opening) store(name string, f *os.File) { o.stored = append(o.stored, storing{name, f}) }

func (io *IO) open() error {
	for _, path := range []string{io.stdio.Stdin, io.stdio.Stdout, io.stdio.Stderr} {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	if err := io.anchor(); err != nil {
		return err
	}
	o := &opening{io: io}
	err := o.openAll()
	if err == nil {
		err = o.handOver()
	}
	closeAll(o.spare...)
	if err != nil {
		for _, s := range o.stored {
			closeAll(s.file)
		}
		return err
	}
	for _, begin := range o.begin {
		begin()
	}
	return nil
}

func (o *opening) openAll() error {
	if err := o.input(); err != nil {
		return err
	}
	if o.io.stdio.Terminal {
		return o.terminal()
	}
	return errors.Join(o.output(stdout, o.io.stdio.Stdout), o.output(stderr, o.io.stdio.Stderr))
}

// anchor has the keeper open the client's fifos before this worker does: a killed
// worker must not be the only one that had them open, or the client sees an end.
func (io *IO) anchor() error {
	for i, path := range []string{io.stdio.Stdin, io.stdio.Stdout, io.stdio.Stderr} {
		if path == "" || i == stderr && io.stdio.Terminal {
			continue
		}
		fifo, err := findFifo(path)
		if err != nil {
			return err
		}
		err = io.d.Open(io.key(nameAnchor+"/"+names[i]), fifo)
		closeAll(fifo)
		if err != nil {
			return err
		}
	}
	return nil
}

// handOver gives everything to the keeper, a stream's fifo before its source. What an
// earlier attempt stored is replaced name by name, and the rest of it dropped.
func (o *opening) handOver() error {
	stale := []string{
		names[stdin] + nameFifo, names[stdin] + nameHold, names[stdin],
		names[stdout] + nameFifo, names[stdout], names[stderr] + nameFifo, names[stderr],
		nameConsole, nameListener, nameConnection,
	}
	for _, s := range o.stored {
		if err := o.io.d.Store(o.io.key(s.name), s.file); err != nil {
			return err
		}
		stale = slices.DeleteFunc(stale, func(name string) bool { return name == s.name })
	}
	for _, name := range append(stale, nameAnchor) {
		if err := o.io.d.Drop(o.io.key(name)); err != nil {
			return err
		}
	}
	return nil
}

// input opens the client's stdin fifo for reading, and for writing in the keeper's
// hand so that a client that goes and comes back does not end it. A process without a
// terminal gets a pipe, not the fifo: one that opens /dev/stdin after the end would
// block for ever on a fifo, where a pipe gives it the end again. Nothing is copied
// before the process is there: it would be lost with the pipe of a launch that is undone.
func (o *opening) input() error {
	io := o.io
	if io.stdio.Stdin == "" {
		return nil
	}
	fifo, err := openFifo(io.stdio.Stdin, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	o.store(names[stdin]+nameFifo, fifo)
	o.spare = append(o.spare, fifo) // fetched again when the copying begins
	if !io.opts.StdinClosed {
		hold, err := openFifo(io.stdio.Stdin, unix.O_WRONLY|unix.O_NONBLOCK)
		if err != nil {
			return err
		}
		o.store(names[stdin]+nameHold, hold)
		o.spare = append(o.spare, hold) // the keeper's alone
	}
	if io.stdio.Terminal {
		return nil
	}
	ours, theirs, err := pipe(names[stdin], false, io.opts.UID, io.opts.GID)
	if err != nil {
		return err
	}
	io.child[stdin] = theirs
	o.store(names[stdin], ours)
	o.spare = append(o.spare, ours)
	return nil
}

func (o *opening) output(stream int, path string) error {
	io, out := o.io, o.io.outputs[stream]
	if path == "" {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		io.child[stream] = null
		return err
	}
	if io.direct() {
		// Blocking, as a process expects of its stdout; read-write, so that a missing reader
		// neither kills it nor loses anything.
		fifo, err := openFifo(path, unix.O_RDWR)
		if err != nil {
			return err
		}
		io.child[stream] = fifo
		o.store(out.name+nameFifo, fifo)
		close(out.copied)
		return nil
	}
	fifo, err := openFifo(path, unix.O_RDWR|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	o.store(out.name+nameFifo, fifo)
	ours, theirs, err := pipe(out.name, true, io.opts.UID, io.opts.GID)
	if err != nil {
		return err
	}
	io.child[stream] = theirs
	o.store(out.name, ours)
	o.begin = append(o.begin, func() { out.copyPipe(ours, fifo) })
	return nil
}

// terminal makes the socket the runtime delivers the terminal to, and opens the
// client's stdout; the copying waits for the terminal.
func (o *opening) terminal() error {
	io := o.io
	if io.stdio.Stdout != "" {
		fifo, err := openFifo(io.stdio.Stdout, unix.O_RDWR|unix.O_NONBLOCK)
		if err != nil {
			return err
		}
		widen(fifo)
		o.store(names[stdout]+nameFifo, fifo)
		o.spare = append(o.spare, fifo) // fetched again with the terminal
	}
	listener, err := listenConsole(io.opts.Bundle, io.opts.Intent)
	if err != nil {
		return err
	}
	o.store(nameListener, listener)
	o.spare = append(o.spare, listener)
	return nil
}
