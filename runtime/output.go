package runtime

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// output is stdout or stderr of one process, on its way to where the client wants it:
//
//   - a fifo that the process has itself (direct);
//   - a fifo that a pipe or a terminal is copied to, which is then held until the client
//     has read it all;
//   - a file that they are appended to;
//   - a logger, which has the process's pipe itself; a terminal is copied to that.
//
// A fifo or a logger's pipe is open for reading as well: without a reader nothing is
// killed by SIGPIPE, and what was written waits for one.
type output struct {
	io     *IO
	name   string
	target target
	once   sync.Once
	copied chan struct{} // closed when there is nothing left to hand over
	err    error         // of the copying; read after copied is closed
}

// done says that there is nothing left to copy.
func (o *output) done(err error) {
	o.once.Do(func() {
		o.err = err
		close(o.copied)
	})
}

// direct reports whether the process has the client's fifo itself.
func (o *output) direct() bool {
	return o.io.opts.Direct && !o.io.stdio.Terminal && o.target.kind == toFifo
}

// sink is where a pipe or a terminal is copied to.
type sink struct {
	file   *os.File // what is spliced to
	append *appender
	others []*os.File // to be closed with file
}

func (s *sink) files() []*os.File { return append([]*os.File{s.file}, s.others...) }

// sink is the output's as the keeper has it; nil where there is none any more.
func (o *output) sink() (*sink, error) {
	if o.target.kind == toNull { // a terminal that nobody reads
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return &sink{file: null}, err
	}
	stage, err := o.io.fetchPollable(o.name + nameStage)
	if err != nil {
		return nil, err
	}
	if stage != nil {
		return o.fileSink(stage)
	}
	fifo, err := o.io.fetchPollable(o.name + nameFifo)
	if fifo == nil || err != nil {
		return nil, err
	}
	return &sink{file: fifo}, nil
}

func (o *output) fileSink(stage *os.File) (*sink, error) {
	s := &sink{file: stage}
	var parts [2]*os.File
	for i, name := range []string{nameFile, nameMark} {
		f, err := o.io.fetch(o.name + name)
		if err == nil && f == nil {
			err = errors.New("the keeper holds a stage without " + o.name + name)
		}
		if err != nil {
			closeAll(s.files()...)
			return nil, err
		}
		parts[i] = f
		s.others = append(s.others, f)
	}
	var err error
	if s.append, err = newAppender(parts[0], stage, parts[1]); err != nil {
		closeAll(s.files()...)
		return nil, err
	}
	s.others = append(s.others, s.append.copies[:]...)
	return s, nil
}

// copyPipe copies until every holder of the pipe's other end is gone.
func (o *output) copyPipe(pipe *os.File, to *sink) {
	o.io.do(func() {
		o.copyTo(to, &pump{src: pipe}, o.name)
	}, append(to.files(), pipe)...)
}

// copyTerminal copies until the process and all users of its terminal are gone.
func (o *output) copyTerminal(master *os.File, to *sink) {
	o.io.do(func() {
		o.copyTo(to, &pump{src: master, gone: o.io.hasEnded}, nameConsole)
	}, append(to.files(), master)...)
}

// copyTo copies all there is, lets the source go, and does what is to be done then.
func (o *output) copyTo(to *sink, p *pump, source string) {
	p.dst = to.file
	if to.append != nil {
		p.begin, p.moved = to.append.settle, func() error { return to.append.deliver(o.io.stop) }
	}
	if err, ended := o.move(p, source); ended {
		o.finish(to, err)
	}
}

// move copies all there is and lets the source go. ended is false where it was stopped
// before that.
func (o *output) move(p *pump, source string) (err error, ended bool) {
	err = o.io.pump(source, p)
	if o.io.stopping() {
		o.done(os.ErrClosed)
		return nil, false
	}
	if errors.Is(err, unix.EPIPE) {
		err = nil
	}
	_ = p.src.Close()
	return errors.Join(err, o.io.d.Drop(o.io.key(source))), true
}

// finish goes on when all is copied. Drops that fail are made up for by Close; or the
// keeper is gone.
func (o *output) finish(to *sink, err error) {
	switch o.target.kind {
	case toFifo:
		o.done(err)
		o.hold(to.file)
		return
	case toLogger: // is to see the end and to have read all
		closeAll(to.file)
		err = errors.Join(err, o.io.d.Drop(o.io.key(o.name+nameFifo)))
		o.awaitLogger()
	}
	o.done(err)
	closeAll(to.files()...)
	for _, name := range []string{nameStage, nameMark, nameFile, nameFifo} {
		_ = o.io.d.Drop(o.io.key(o.name + name))
	}
}

// hold keeps the fifo until the client has read it. It owns fifo.
func (o *output) hold(fifo *os.File) {
	defer closeAll(fifo)
	if !awaitDrained(fifo, o.io.stop) || o.io.stopping() {
		return
	}
	_ = o.io.d.Drop(o.io.key(o.name + nameFifo)) // where it fails the keeper is gone, or Close does it
}

// exited goes on after the process's end with what it wrote itself: its fifo is held
// until the client has read it, its logger waited for.
func (o *output) exited() {
	switch {
	case o.direct():
		fifo, err := o.io.fetch(o.name + nameFifo)
		if fifo == nil || err != nil {
			return
		}
		o.io.do(func() { o.hold(fifo) }, fifo)
	case o.target.kind == toLogger && !o.io.stdio.Terminal:
		o.io.do(func() {
			o.awaitLogger()
			o.done(nil)
		})
	}
}

// awaitLogger waits until a logger has read what was written for it. Where the logger
// has ended, what is there is thrown away, which will do.
func (o *output) awaitLogger() {
	read, err := o.io.fetch(o.name)
	if read == nil || err != nil {
		return
	}
	defer closeAll(read)
	awaitDrained(read, o.io.stop)
}

// resume goes on with a stream that is no terminal.
func (o *output) resume() error {
	if o.direct() {
		o.done(nil)
		return nil
	}
	if o.target.kind == toLogger {
		return nil // it has the pipe; see watchLogger
	}
	to, err := o.sink()
	if err != nil {
		return err
	}
	if to == nil {
		o.done(nil)
		return nil
	}
	pipe, err := o.io.fetchPollable(o.name)
	if err != nil {
		closeAll(to.files()...)
		return err
	}
	if pipe != nil {
		o.copyPipe(pipe, to)
		return nil
	}
	o.io.do(func() { o.finish(to, nil) }, to.files()...) // killed when all was copied
	return nil
}
