package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Stdio is what the client asked for: paths of fifos, empty for /dev/null; for stdout and
// stderr also the URI of a file (file://) or of a logger (binary://, binary-v2://). With
// a terminal stderr is not used.
type Stdio struct {
	Stdin    string `json:"stdin,omitempty"`
	Stdout   string `json:"stdout,omitempty"`
	Stderr   string `json:"stderr,omitempty"`
	Terminal bool   `json:"terminal,omitempty"`
}

// IOOptions says how a process's stdio is made.
type IOOptions struct {
	// Direct gives the process the client's fifos themselves. For an init with its own
	// pid namespace only: all its processes end with it, so the fifos can be let go then.
	Direct bool
	Bundle string
	Intent string // names the console socket in the bundle
	// StdinClosed is set where the client's CloseIO is journaled.
	StdinClosed bool
	UID, GID    int // owner of pipes (Config.IoUID, IoGID)
	// Namespace and ID are what a logger is told: containerd's namespace, and the id of the
	// container or, for an exec, of the exec.
	Namespace, ID string
	// GiveUp, when closed, ends the wait for a logger to get ready; nil: never.
	GiveUp <-chan struct{}
}

const (
	stdin = iota
	stdout
	stderr
)

var names = [...]string{"stdin", "stdout", "stderr"}

// IO is the stdio of one process. Everything that matters to the process or the client
// is with the keeper; an IO is one worker's view of it, and copies.
type IO struct {
	d       Descriptors
	prefix  string
	stdio   Stdio
	targets [3]target // what stdio means
	opts    IOOptions
	child   [3]*os.File // the process's ends, until Started

	stop chan struct{} // closed by Close and Detach
	busy sync.WaitGroup

	mu      sync.Mutex
	files   []*os.File              // closed to end the copying
	works   int                     // that are under way
	idle    map[string]*atomic.Bool // which of them only wait, by the name of what they wait for
	outputs [3]*output              // stdout and stderr, where the client wants them
	master  *os.File
	fed     bool // the copying to stdin has begun, where it is a pipe
	gone    bool // the process has ended
	stopped bool
}

// OpenIO makes the stdio of a process that is about to be launched. Everything is with
// the keeper when it returns. It may be called again for a process whose launch did not
// happen: readers do not see an end in between. Errors are errdefs.ErrInvalidArgument
// where a path or URI cannot be used. It may wait for a logger to get ready, at most
// readyTimeout; of one that does not nothing is left.
func OpenIO(d Descriptors, prefix string, s Stdio, o IOOptions) (*IO, error) {
	io, err := newIO(d, prefix, s, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", prefix, err)
	}
	if err := io.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", prefix, err), io.Close())
	}
	return io, nil
}

// ResumeIO is the next worker's view of the stdio of a process that was launched. It
// goes on copying where the last worker was killed, wherever that was.
func ResumeIO(d Descriptors, prefix string, s Stdio, o IOOptions) (*IO, error) {
	io, err := newIO(d, prefix, s, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", prefix, err)
	}
	if err := io.resume(); err != nil {
		io.Detach()
		return nil, fmt.Errorf("%s: %w", prefix, err)
	}
	return io, nil
}

func newIO(d Descriptors, prefix string, s Stdio, o IOOptions) (*IO, error) {
	targets, err := parseTargets(s)
	if err != nil {
		return nil, err
	}
	io := &IO{d: d, prefix: prefix, stdio: s, targets: targets, opts: o, stop: make(chan struct{}), idle: map[string]*atomic.Bool{}}
	for i, t := range targets {
		// A terminal is always copied: a process must not block on a screen nobody watches.
		if i == stdout && s.Terminal || i != stdin && t.kind != toNull {
			io.outputs[i] = &output{io: io, name: names[i], target: t, copied: make(chan struct{})}
		}
	}
	return io, nil
}

// Started is called when the runtime has returned, in this worker or an earlier one.
// The process's ends are closed here, so that its end is seen, its terminal is taken
// over, and what the client writes is fed to it. It may be called again.
func (io *IO) Started() error {
	closeAll(io.child[:]...)
	io.mu.Lock()
	master := io.master
	io.mu.Unlock()
	begin := io.beginInput
	switch {
	case master != nil:
		return nil
	case io.stdio.Terminal:
		begin = func() error { return io.takeTerminal(consoleTimeout) }
	}
	if err := begin(); err != nil {
		return fmt.Errorf("%s: %w", io.prefix, err)
	}
	return nil
}

// Resize sets the size of the terminal; without one it does nothing, as the stock shim.
// The terminal of a process that has ended is errdefs.ErrFailedPrecondition.
func (io *IO) Resize(width, height uint16) error {
	io.mu.Lock()
	master, gone := io.master, io.gone
	io.mu.Unlock()
	if gone {
		return fmt.Errorf("%s: resize: the process has ended: %w", io.prefix, errdefs.ErrFailedPrecondition)
	}
	if master == nil {
		return nil
	}
	err := control(master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	})
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%s: resize: %w", io.prefix, err)
	}
	return nil
}

// CloseStdin gives up the keeper's hold on the client's stdin fifo. The process sees
// the end once the client has closed it too and all of it was read: as with the stock
// shim, a client may call CloseIO before it has written its last bytes. It may be
// called again, and returns at once.
func (io *IO) CloseStdin() error {
	if err := io.d.Drop(io.key(names[stdin] + nameHold)); err != nil {
		return fmt.Errorf("%s: close stdin: %w", io.prefix, err)
	}
	return nil
}

// Exited says that the process has ended. Fifos it wrote itself are let go at once
// where they are empty, otherwise when the client has read them; a terminal without
// users is at its end. It may be called again.
func (io *IO) Exited() {
	io.mu.Lock()
	first := !io.gone && !io.stopped
	io.gone = true
	if first && io.master != nil {
		_ = io.master.SetReadDeadline(time.Unix(1, 0)) // wakes the pump; see pump.gone
	}
	io.mu.Unlock()
	closeAll(io.child[:]...)
	if !first {
		return
	}
	for _, o := range io.outputs {
		if o != nil {
			o.exited()
		}
	}
}

// Drained waits until everything the process has written is in the client's fifos or
// files, or read by its logger. A background child may keep a stream open for as long as
// it likes, hence ctx. Where the process writes into the fifos itself there is nothing to
// wait for.
func (io *IO) Drained(ctx context.Context) error {
	io.Exited()
	var failed error
	for _, o := range io.outputs {
		if o == nil {
			continue
		}
		select {
		case <-o.copied:
			failed = errors.Join(failed, o.err)
		case <-io.stop:
			return fmt.Errorf("%s: %s: %w", io.prefix, o.name, os.ErrClosed)
		case <-ctx.Done():
			return fmt.Errorf("%s: %s is still open or its reader is slow: %w", io.prefix, o.name, ctx.Err())
		}
	}
	return failed
}

// Close ends the copying and the logger, which can take some 18 s, and lets the keeper's
// descriptors go. What the client has not read then is only there for as long as it has
// the fifo open.
func (io *IO) Close() error {
	io.Detach()
	err := CloseIO(io.d, io.prefix)
	if io.stdio.Terminal {
		if failed := io.removeSocket(); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: close: %w", io.prefix, failed))
		}
	}
	return err
}

// Detach ends this worker's part and leaves the rest to the next.
func (io *IO) Detach() {
	io.mu.Lock()
	if !io.stopped {
		io.stopped = true
		close(io.stop)
	}
	closeAll(io.files...)
	closeAll(io.child[:]...)
	io.mu.Unlock()
	io.busy.Wait()
}

func (io *IO) key(name string) string { return io.prefix + "/" + name }

func (io *IO) stopping() bool {
	select {
	case <-io.stop:
		return true
	default:
		return false
	}
}

func (io *IO) hasEnded() bool {
	io.mu.Lock()
	defer io.mu.Unlock()
	return io.gone
}

// do runs work that uses files until Close or Detach closes them.
func (io *IO) do(work func(), files ...*os.File) {
	io.mu.Lock()
	defer io.mu.Unlock()
	if io.stopped {
		closeAll(files...)
		return
	}
	io.files = append(io.files, files...)
	io.works++
	io.busy.Go(func() {
		work()
		io.mu.Lock()
		defer io.mu.Unlock()
		io.works--
	})
}

// waiting runs a part of some work that mostly waits for a stored descriptor; idle says
// that it does, and nothing else.
func (io *IO) waiting(name string, part func() error, idle *atomic.Bool) error {
	io.mu.Lock()
	io.idle[name] = idle
	io.mu.Unlock()
	defer func() {
		io.mu.Lock()
		defer io.mu.Unlock()
		delete(io.idle, name)
	}()
	return part()
}

// pump runs a pump, known by the name of its source meanwhile.
func (io *IO) pump(name string, p *pump) error { return io.waiting(name, p.run, &p.idle) }

// Rest returns the stored descriptors that have to be watched for input while no worker
// runs. It is false while bytes are on their way, or kept for a client that has not read
// them: then the worker is needed.
func (io *IO) Rest() (watch []string, ok bool) {
	io.mu.Lock()
	defer io.mu.Unlock()
	for name, idle := range io.idle {
		if idle.Load() {
			watch = append(watch, io.key(name))
		}
	}
	return watch, len(watch) == io.works
}

// fetch returns a stored descriptor, nil where there is none.
func (io *IO) fetch(name string) (*os.File, error) {
	f, err := io.d.Fetch(io.key(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// fetchPollable is fetch for a descriptor that no process shares.
func (io *IO) fetchPollable(name string) (*os.File, error) {
	f, err := io.fetch(name)
	if f == nil || err != nil {
		return nil, err
	}
	return pollable(f)
}
