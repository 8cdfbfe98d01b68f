package runtime

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// resume looks at which names are stored and goes on from the stage they stand for;
// see the table of names.
func (io *IO) resume() error {
	if err := io.d.Drop(io.key(nameAnchor)); err != nil {
		return err
	}
	if io.opts.StdinClosed {
		if err := io.CloseStdin(); err != nil {
			return err
		}
	}
	if io.targets[stdout].kind == toLogger {
		io.watchLogger()
	}
	if io.stdio.Terminal {
		return io.takeTerminal(0)
	}
	if err := io.beginInput(); err != nil {
		return err
	}
	for _, out := range io.outputs {
		if out == nil {
			continue
		}
		if err := out.resume(); err != nil {
			return err
		}
	}
	return nil
}

// beginInput feeds a process without a terminal, once.
func (io *IO) beginInput() error {
	io.mu.Lock()
	begun := io.fed
	io.fed = true
	io.mu.Unlock()
	if begun {
		return nil
	}
	fifo, err := io.fetchPollable(names[stdin] + nameFifo)
	if fifo == nil || err != nil {
		return err
	}
	pipe, err := io.fetchPollable(names[stdin])
	if err != nil {
		closeAll(fifo)
		return err
	}
	if pipe == nil { // killed while letting go
		closeAll(fifo)
		return errors.Join(io.d.Drop(io.key(names[stdin]+nameHold)), io.d.Drop(io.key(names[stdin]+nameFifo)))
	}
	io.do(func() { io.feed(fifo, pipe) }, fifo, pipe)
	return nil
}

// takeTerminal takes the terminal over where it is not yet, and starts the copying.
// Where there is none any more, the client's fifo is held for what it has not read.
func (io *IO) takeTerminal(limit time.Duration) error {
	master, err := io.takeConsole(limit)
	if err != nil {
		return err
	}
	if master != nil {
		if err := io.dropConsoleSocket(); err != nil {
			closeAll(master)
			return err
		}
		return io.beginTerminal(master)
	}
	awaited, err := io.awaitsConsole()
	if err != nil {
		return err
	}
	if !awaited {
		return io.endTerminal()
	}
	if limit > 0 {
		return fmt.Errorf("the runtime delivered no terminal to its console socket within %s", limit)
	}
	return nil
}

func (io *IO) awaitsConsole() (bool, error) {
	for _, name := range []string{nameListener, nameConnection} {
		f, err := io.fetch(name)
		if err != nil {
			return false, err
		}
		if f != nil {
			return true, f.Close()
		}
	}
	return false, nil
}

// beginTerminal owns master.
func (io *IO) beginTerminal(master *os.File) error {
	out := io.outputs[stdout]
	to, err := out.sink()
	if err == nil && to == nil {
		err = errors.New("the keeper holds a terminal but not what it is copied to")
	}
	if err != nil {
		closeAll(master)
		return err
	}
	input, err := io.fetchPollable(names[stdin] + nameFifo)
	if err != nil {
		closeAll(append(to.files(), master)...)
		return err
	}
	io.mu.Lock()
	io.master = master
	io.mu.Unlock()
	out.copyTerminal(master, to)
	if input != nil {
		io.do(func() { io.feed(input, master) }, input)
	}
	return nil
}

// endTerminal goes on after the terminal's end.
func (io *IO) endTerminal() error {
	out := io.outputs[stdout]
	select {
	case <-out.copied:
		return nil // this worker has seen the end itself
	default:
	}
	var to *sink
	if out.target.kind != toNull {
		var err error
		if to, err = out.sink(); err != nil {
			return err
		}
	}
	if to == nil {
		out.done(nil)
	} else {
		io.do(func() { out.finish(to, nil) }, to.files()...)
	}
	return errors.Join(io.d.Drop(io.key(names[stdin]+nameHold)), io.d.Drop(io.key(names[stdin]+nameFifo)))
}
