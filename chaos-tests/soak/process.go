package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// process is the client's side of one process: its streams, and what is known of its end.
type process struct {
	exec     string // "" for the init
	terminal bool
	fifos    *cio.FIFOSet
	io       cio.IO
	out, err buffer
	input    *io.PipeWriter // nil: none
}

// buffer keeps what a process writes.
type buffer struct {
	mu   sync.Mutex
	data []byte
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.data = append(b.data, p...)
	return len(p), nil
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.data)
}

// attach makes the fifos of a process, and reads and feeds them.
func (l *life) attach(exec string, terminal, input bool) (*process, error) {
	p := &process{exec: exec, terminal: terminal}
	name := exec
	if name == "" {
		name = "init"
	}
	var err error
	if p.fifos, err = cio.NewFIFOSetInDir(l.s.fifos, l.slot.ID+"-"+name, terminal); err != nil {
		return nil, err
	}
	var stdin io.Reader
	if input {
		stdin, p.input = io.Pipe()
	} else {
		p.fifos.Stdin = ""
	}
	if terminal {
		p.fifos.Stderr = ""
	}
	p.io, err = cio.NewAttach(cio.WithStreams(stdin, &p.out, &p.err))(p.fifos)
	if err != nil {
		return nil, errors.Join(err, p.fifos.Close())
	}
	return p, nil
}

// feed gives the process its input and returns once it is with the fifo, or the process is gone.
func (p *process) feed(ctx context.Context, text string) error {
	stop := context.AfterFunc(ctx, func() { p.input.CloseWithError(ctx.Err()) })
	defer stop()
	if _, err := io.WriteString(p.input, text); err != nil {
		return err
	}
	return p.input.Close()
}

// outputLimit is how long an output may take to end after its process was deleted.
const outputLimit = 30 * time.Second

// end waits for the end of the outputs.
func (p *process) end() error {
	done := make(chan struct{})
	go func() { p.io.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(wait.Limit(outputLimit)):
		return fmt.Errorf("the output of %q has not ended within %v", p.exec, outputLimit)
	}
}

// detach closes the client's ends and removes the fifos.
func (p *process) detach() {
	if p == nil {
		return
	}
	if p.input != nil {
		p.input.CloseWithError(io.ErrClosedPipe)
	}
	p.io.Cancel()
	p.io.Wait()
	p.io.Close()
	p.fifos.Close()
}

// streams compares the outputs of a process with what they should be. Where the disk was full, runc's complaints about that
// are among them, also those of a first attempt that was repeated: its stderr is that of the process.
func (l *life) streams(p *process, want string) []checker.Stream {
	stderr := p.err.String()
	if len(l.s.faults.during(l.slot, l.began, l.s.clock.tick(), faultDisk)) > 0 {
		stderr = complaint.ReplaceAllString(stderr, "")
	}
	return []checker.Stream{{Name: "stdout", Want: want, Got: p.out.String()}, {Name: "stderr", Want: "", Got: stderr}}
}

var complaint = regexp.MustCompile(`(?m)^(Failed to write to log,|(runc [a-z]+|exec) failed:) .*no space left on device.*\n`)

// startTime is field 22 of /proc/PID/stat, 0 for a process that is gone.
func startTime(pid int) uint64 {
	start, err := proc.StartTime(pid)
	if err != nil {
		return 0
	}
	return start
}
