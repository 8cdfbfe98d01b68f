package runtime

import (
	"errors"
	"fmt"
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
	copies []*os.File // of appenders: closed with the copying
}

type storing struct {
	name string
	file *os.File
}

func (o *opening) store(name string, f *os.File) { o.stored = append(o.stored, storing{name, f}) }

func (io *IO) open() error {
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
		closeAll(o.copies...)
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
	if o.io.targets[stdout].kind == toLogger {
		return o.loggerForPipes()
	}
	return errors.Join(o.output(stdout), o.output(stderr))
}

// anchor has the keeper open the client's fifos before this worker does: a killed
// worker must not be the only one that had them open, or the client sees an end.
func (io *IO) anchor() error {
	for i, t := range io.targets {
		if t.kind != toFifo {
			continue
		}
		fifo, err := findFifo(t.path)
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
		nameConsole, nameListener, nameConnection,
	}
	for _, name := range []string{names[stdout], names[stderr]} {
		stale = append(stale, name+nameFifo, name+nameStage, name+nameMark, name+nameFile, name)
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

func (o *opening) output(stream int) error {
	io, out := o.io, o.io.outputs[stream]
	switch {
	case out == nil:
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		io.child[stream] = null
		return err
	case out.direct():
		return o.directOutput(stream)
	}
	to, err := o.sink(out)
	if err != nil {
		return err
	}
	ours, theirs, err := pipe(out.name, true, io.opts.UID, io.opts.GID)
	if err != nil {
		return err
	}
	io.child[stream] = theirs
	o.store(out.name, ours)
	o.begin = append(o.begin, func() { out.copyPipe(ours, to) })
	return nil
}

// directOutput gives the process the client's fifo: blocking, as a process expects of its
// stdout, and read-write, so that a missing reader neither kills it nor loses anything.
// The runtime gives it to the container's user where that is possible, which in a user
// namespace it is only from an owner inside: hence Config.IoUID and IoGID here too.
func (o *opening) directOutput(stream int) error {
	io, out := o.io, o.io.outputs[stream]
	fifo, err := openFifo(out.target.path, unix.O_RDWR)
	if err != nil {
		return err
	}
	io.child[stream] = fifo
	o.store(out.name+nameFifo, fifo)
	if io.opts.UID != 0 || io.opts.GID != 0 {
		if err := fifo.Chown(io.opts.UID, io.opts.GID); err != nil {
			return fmt.Errorf("%s: %w", out.name, err)
		}
	}
	out.done(nil)
	return nil
}

// sink makes what an output is copied to. Its descriptors are closed with those that
// are stored where OpenIO fails, else with the copying.
func (o *opening) sink(out *output) (*sink, error) {
	if out.target.kind == toFifo {
		fifo, err := openFifo(out.target.path, unix.O_RDWR|unix.O_NONBLOCK)
		if err != nil {
			return nil, err
		}
		o.store(out.name+nameFifo, fifo)
		return &sink{file: fifo}, nil
	}
	file, regular, err := openLog(out.target.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", out.name, err)
	}
	if !regular {
		o.store(out.name+nameFifo, file)
		return &sink{file: file}, nil
	}
	// The stage last: with it the rest is looked for.
	o.store(out.name+nameFile, file)
	mark, err := newMark()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", out.name, err)
	}
	o.store(out.name+nameMark, mark)
	stage, err := newStage()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", out.name, err)
	}
	o.store(out.name+nameStage, stage)
	to := &sink{file: stage, others: []*os.File{file, mark}}
	if to.append, err = newAppender(file, stage, mark); err != nil {
		return nil, fmt.Errorf("%s: %w", out.name, err)
	}
	o.copies = append(o.copies, to.append.copies[:]...)
	to.others = append(to.others, to.append.copies[:]...)
	return to, nil
}

// loggerForPipes starts the logger of a process without a terminal, which gets the
// pipes' other ends. The keeper holds none of these: when the process and its children
// are gone, the logger reads the end.
func (o *opening) loggerForPipes() error {
	var reads [3]*os.File
	for _, stream := range []int{stdout, stderr} {
		read, write, err := blockingPipe(names[stream], o.io.opts.UID, o.io.opts.GID)
		if err != nil {
			return err
		}
		reads[stream], o.io.child[stream] = read, write
		o.spare = append(o.spare, read)
		if err := o.storeReader(names[stream], read); err != nil {
			return err
		}
	}
	return o.startLogger(reads[stdout], reads[stderr])
}

// loggerForTerminal starts the logger of a terminal, which is copied into its pipe.
// Its stderr is at its end, as nothing can come.
func (o *opening) loggerForTerminal() error {
	ends := [2]*os.File{}
	for i, stream := range []int{stdout, stderr} {
		read, write, err := blockingPipe(names[stream], 0, 0)
		if err != nil {
			return err
		}
		ends[i] = read
		o.spare = append(o.spare, read, write)
		if stream == stderr {
			closeAll(write)
			break
		}
		if err := o.storeReader(names[stream], read); err != nil {
			return err
		}
		widen(write)
		o.store(names[stream]+nameFifo, write) // fetched again with the terminal
	}
	return o.startLogger(ends[0], ends[1])
}

// storeReader keeps a pipe's other end open for reading: what the process writes does
// not fail when the logger has ended. It is a description of its own, as it will be read
// from without blocking then.
func (o *opening) storeReader(name string, read *os.File) error {
	return control(read, func(fd int) error {
		n, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f := os.NewFile(uintptr(n), name)
		o.store(name, f)
		o.spare = append(o.spare, f) // the keeper's alone
		return nil
	})
}

// startLogger ends the logger of an attempt that was cut off, and starts one.
func (o *opening) startLogger(stdoutEnd, stderrEnd *os.File) error {
	io := o.io
	if err := endLogger(io.d, io.prefix); err != nil {
		return err
	}
	o.begin = append(o.begin, io.watchLogger)
	return io.startLogger(io.targets[stdout], stdoutEnd, stderrEnd)
}

// terminal makes the socket the runtime delivers the terminal to, and opens what it is
// copied to; the copying waits for the terminal.
func (o *opening) terminal() error {
	io := o.io
	switch io.targets[stdout].kind {
	case toFifo, toFile:
		to, err := o.sink(io.outputs[stdout])
		if err != nil {
			return err
		}
		if to.append == nil {
			widen(to.file)
		}
		o.spare = append(o.spare, to.files()...) // fetched again with the terminal
	}
	listener, err := listenConsole(io.opts.Bundle, io.opts.Intent)
	if err != nil {
		return err
	}
	o.store(nameListener, listener)
	o.spare = append(o.spare, listener)
	if io.targets[stdout].kind == toLogger {
		return o.loggerForTerminal()
	}
	return nil
}
