package client

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"perdure/recovery/keeper/protocol"
)

// do sends m as a call and waits for its reply. The keeper answers at once: it
// never does anything that blocks.
func (c *Client) do(m protocol.Message, f *os.File) (*os.File, error) {
	waiting := make(chan reply, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return nil, ErrGone
	}
	c.call++
	m.Call = c.call
	c.calls[m.Call] = waiting
	c.mu.Unlock()

	if err := c.send(m, f); err != nil {
		c.mu.Lock()
		delete(c.calls, m.Call)
		c.mu.Unlock()
		return nil, err
	}
	r := <-waiting
	return r.file, r.err
}

func (c *Client) answer(m protocol.Message, f *os.File) {
	c.mu.Lock()
	waiting := c.calls[m.Call]
	delete(c.calls, m.Call)
	c.mu.Unlock()
	if waiting == nil {
		if f != nil {
			f.Close()
		}
		return
	}
	waiting <- reply{file: f, err: replyError(m.Error)}
}

func replyError(text string) error {
	switch text {
	case "":
		return nil
	case protocol.NotStored:
		return os.ErrNotExist
	case protocol.NothingToAccept:
		return syscall.EAGAIN
	}
	return errors.New(text)
}

// Store leaves a duplicate of f with the keeper under name, where it outlives
// this worker. A descriptor of that name is replaced, and its wake mark lost. f
// stays the caller's.
func (c *Client) Store(name string, f *os.File) error {
	if _, err := c.do(protocol.Message{Type: protocol.Store, Name: name}, f); err != nil {
		return fmt.Errorf("storing descriptor %s with the keeper: %w", name, err)
	}
	return nil
}

// Open has the keeper open a fifo read-write and keep that under name, so that
// there is no moment in which only this worker has it open. fifo is a
// descriptor without access (O_PATH) and stays the caller's.
func (c *Client) Open(name string, fifo *os.File) error {
	if _, err := c.do(protocol.Message{Type: protocol.Open, Name: name}, fifo); err != nil {
		return fmt.Errorf("opening %s in the keeper: %w", name, err)
	}
	return nil
}

// Fetch returns a duplicate of a stored descriptor (the same open file
// description); the caller closes it. A name that is not stored is
// os.ErrNotExist.
func (c *Client) Fetch(name string) (*os.File, error) {
	f, err := c.do(protocol.Message{Type: protocol.Fetch, Name: name}, nil)
	return attached("fetching descriptor "+name+" from the keeper", f, err)
}

// Drop closes the keeper's descriptors called prefix or prefix/.... It is no
// error when there is none.
func (c *Client) Drop(prefix string) error {
	return c.DropAfter(prefix, 0)
}

// DropAfter is a Drop that the keeper carries out once the request of this
// number is answered or its client gone, whatever becomes of this worker: until
// then a worker that is given the request again finds the names in its Welcome.
// It returns when the keeper has noted it.
func (c *Client) DropAfter(prefix string, request uint64) error {
	if _, err := c.do(protocol.Message{Type: protocol.Drop, Name: prefix, After: request}, nil); err != nil {
		return fmt.Errorf("dropping descriptors %s of the keeper: %w", prefix, err)
	}
	return nil
}

// Accept lets the keeper accept a connection on the stored listening socket,
// store it as name, and give a duplicate: no moment in which a killed worker
// could take the connection along. syscall.EAGAIN means that nothing is waiting:
// poll an own duplicate of the listener first. The keeper makes the listener
// non-blocking.
func (c *Client) Accept(listener, name string) (*os.File, error) {
	f, err := c.do(protocol.Message{Type: protocol.Accept, Listener: listener, Name: name}, nil)
	return attached("accepting on "+listener+" in the keeper", f, err)
}

func attached(what string, f *os.File, err error) (*os.File, error) {
	if err == nil && f == nil {
		err = errors.New("no descriptor arrived; the limit of open files may be reached")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return f, nil
}

// Acknowledge says that the exit of this sequence number is journaled, or is
// nobody's: this one only, in any order. It is not told again.
func (c *Client) Acknowledge(seq uint64) {
	c.tell(protocol.Message{Type: protocol.ExitAck, Seq: seq})
}

// Hold on keeps every exit, however many there are, until Hold off: for the
// time in which an intent is open and a pid not yet known. It outlives the worker.
func (c *Client) Hold(on bool) {
	c.tell(protocol.Message{Type: protocol.Hold, On: on})
}

// Watch says that the exit of this process is wanted: it is never dropped.
func (c *Client) Watch(pid int, start uint64) {
	c.tell(protocol.Message{Type: protocol.Watch, Pid: uint64(pid), Start: start})
}

// Wake has the keeper start a worker when, after this one has left with exit
// code 0, the stored descriptor is ready for mask (unix.EPOLLIN, ...; errors and
// hang-up are always included). 0 takes it back; the next worker has no marks.
func (c *Client) Wake(name string, mask uint32) {
	c.tell(protocol.Message{Type: protocol.Wake, Name: name, Mask: uint64(mask)})
}

// WantShutdown makes the keeper remember that containerd called Shutdown while
// tasks existed; the next workers find it in their Welcome.
func (c *Client) WantShutdown() error {
	_, err := c.do(protocol.Message{Type: protocol.WantShutdown}, nil)
	return err
}

// Leave ends the keeper: its socket is unlinked when this returns nil, and it
// exits as soon as every request but Wait is answered. request is the one on
// whose behalf it leaves, 0 if none. It is refused while another `start` may have
// been given this socket, or another request's Create is unanswered; then serve on.
func (c *Client) Leave(request uint64) error {
	_, err := c.do(protocol.Message{Type: protocol.Leave, Request: request}, nil)
	return err
}
