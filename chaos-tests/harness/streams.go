package harness

import (
	"bytes"
	"context"
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
}

// creator returns what containerd's client makes the fifos with. A nil stdin
// means that the process has none.
func (s *Streams) creator(dir string, stdin io.Reader, terminal bool) cio.Creator {
	options := []cio.Opt{cio.WithStreams(stdin, &s.Stdout, &s.Stderr), cio.WithFIFODir(dir)}
	if terminal {
		options = append(options, cio.WithTerminal)
	}
	return cio.NewCreator(options...)
}

// drain waits until both outputs have ended. It is an error when that takes
// longer than limit: something still has them open.
func drain(streams cio.IO, limit time.Duration) error {
	done := make(chan struct{})
	go func() { streams.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("output has not ended within %v", limit)
	}
}
