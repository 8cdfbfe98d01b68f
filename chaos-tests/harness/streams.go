package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"perdure/chaos-tests/wait"
)

// Buffer collects one output of a process while it runs.
type Buffer struct {
	mu   sync.Mutex
	data bytes.Buffer
}

// Write is called by containerd's client with what it read.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

// String returns everything so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// Await waits until text has been written.
func (b *Buffer) Await(limit time.Duration, text string) error {
	return wait.Until(context.Background(), limit, fmt.Sprintf("%q in the output", text), func() error {
		if all := b.String(); !bytes.Contains([]byte(all), []byte(text)) {
			return fmt.Errorf("so far it is %q", all)
		}
		return nil
	})
}

// Streams are the standard streams of a process as its client has them. Stderr
// stays empty with a terminal.
type Streams struct {
	Stdout, Stderr Buffer

	ends *ends // nil until there are fifos
}

// ends are the client's ends of a process's fifos. Unlike those of
// containerd's client, they can be closed while the fifos stay.
type ends struct {
	cio.IO
	fifos  *cio.FIFOSet
	attach cio.Attach
}

// creator returns what containerd's client makes the fifos with. A nil stdin
// means that the process has none.
func (s *Streams) creator(dir string, stdin io.Reader, terminal bool) cio.Creator {
	return func(id string) (cio.IO, error) {
		fifos, err := cio.NewFIFOSetInDir(dir, id, terminal)
		if err != nil {
			return nil, err
		}
		if stdin == nil {
			fifos.Stdin = ""
		}
		if terminal {
			fifos.Stderr = ""
		}
		s.ends = &ends{fifos: fifos, attach: cio.NewAttach(cio.WithStreams(stdin, &s.Stdout, &s.Stderr))}
		if err := s.Attach(); err != nil {
			s.ends = nil
			return nil, errors.Join(err, fifos.Close())
		}
		return s.ends, nil
	}
}

// Attach opens the client's ends of the fifos: again, after Detach. That is
// for processes without input.
func (s *Streams) Attach() (err error) {
	s.ends.IO, err = s.ends.attach(cio.NewFIFOSet(s.ends.fifos.Config, nil))
	return err
}

// Detach closes the client's ends, as when the client ends. What the process
// writes from now on waits in the fifos.
func (s *Streams) Detach() error {
	s.ends.Cancel()
	s.ends.Wait()
	return s.ends.IO.Close()
}

// Close closes the client's ends and removes the fifos.
func (e *ends) Close() error { return errors.Join(e.IO.Close(), e.fifos.Close()) }

// closeStreams does what is left to do of closing the client's ends.
func (s *Streams) closeStreams() error {
	if s.ends == nil {
		return nil
	}
	s.ends.Cancel()
	err := s.ends.Close()
	s.ends = nil
	return err
}

// AwaitEnd waits until both outputs have ended. It is an error when that takes
// longer than wait.Limit(limit): something still has them open.
func (s *Streams) AwaitEnd(limit time.Duration) error {
	if s.ends == nil {
		return nil // the client made other ones
	}
	done := make(chan struct{})
	go func(streams cio.IO) { streams.Wait(); close(done) }(s.ends)
	select {
	case <-done:
		return nil
	case <-time.After(wait.Limit(limit)):
		return fmt.Errorf("output has not ended within %v", limit)
	}
}
