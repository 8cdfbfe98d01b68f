package runtime

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	streamSize = 16 << 20 // bytes sent through in a test
	kills      = 20
)

// fillPattern writes what belongs at an offset: every eight bytes name their own
// place, so a byte lost or repeated anywhere shows.
func fillPattern(b []byte, offset int) {
	var word [8]byte
	for i := range b {
		at := offset + i
		binary.BigEndian.PutUint64(word[:], uint64(at/8)*0x9e3779b97f4a7c15)
		b[i] = word[at%8]
	}
}

// checkPattern reads a stream of streamSize bytes to its end and reports on its way.
func checkPattern(r io.Reader, progress func(total int)) error {
	got, want := make([]byte, 8192), make([]byte, 8192)
	total := 0
	for {
		n, err := r.Read(got)
		fillPattern(want[:n], total)
		for i := range n {
			if got[i] != want[i] {
				return fmt.Errorf("byte %d is %#x instead of %#x", total+i, got[i], want[i])
			}
		}
		total += n
		progress(total)
		if total > streamSize {
			return fmt.Errorf("more than %d bytes", streamSize)
		}
		if err == io.EOF || total == streamSize && err != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("after %d bytes: %w", total, err)
		}
	}
	if total != streamSize {
		return fmt.Errorf("%d bytes of %d", total, streamSize)
	}
	return nil
}

// writePattern writes the stream in pieces of changing size.
func writePattern(w io.Writer, progress func(total int)) error {
	buffer := make([]byte, 70_000)
	for total, size := 0, 1; total < streamSize; size = size*7%65_521 + 1 {
		piece := buffer[:min(size, streamSize-total)]
		fillPattern(piece, total)
		if _, err := w.Write(piece); err != nil {
			return fmt.Errorf("after %d bytes: %w", total, err)
		}
		total += len(piece)
		progress(total)
	}
	return nil
}

// writeRole is a container process that writes the stream to its stdout.
func writeRole() int {
	if err := writePattern(os.Stdout, func(int) {}); err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		return 1
	}
	return 0
}

// checkRole is a container process that checks its stdin; from a terminal it reads
// only as much as belongs to the stream, which has no end there.
func checkRole() int {
	var in io.Reader = os.Stdin
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		in = io.LimitReader(in, streamSize)
	}
	if err := checkPattern(in, func(int) {}); err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		return 1
	}
	return 0
}

// killings kills a worker each time the stream has got a step further and starts the
// next, which finds the stream in the middle.
type killings struct {
	t      *testing.T
	keeper *store
	job    job
	steps  chan struct{}
	broken chan error // what the test's end of the stream found
	next   int
}

func newKillings(t *testing.T, keeper *store, j job) *killings {
	return &killings{t: t, keeper: keeper, job: j, steps: make(chan struct{}, kills), broken: make(chan error, 1), next: streamSize / (kills + 1)}
}

func (k *killings) progress(total int) {
	for total >= k.next && k.next <= streamSize*kills/(kills+1) {
		k.steps <- struct{}{}
		k.next += streamSize / (kills + 1)
	}
}

func (k *killings) tell(err error) error {
	if err != nil {
		k.broken <- err
	}
	return err
}

// run returns the last worker, which is alive.
func (k *killings) run() *worker {
	w := startWorker(k.t, k.keeper, "copy", k.job)
	for i := range kills {
		select {
		case <-k.steps:
		case err := <-k.broken:
			w.kill()
			k.t.Fatalf("after %d kills: %v", i, err)
		case <-time.After(patience):
			w.kill()
			k.t.Fatalf("the stream stands still after %d kills", i)
		}
		w.kill()
		w = startWorker(k.t, k.keeper, "copy", k.job)
	}
	return w
}

func process(t *testing.T, role string, in, out *os.File) *exec.Cmd {
	t.Helper()
	cmd := roleCommand(role, in, out)
	must(t, cmd.Start())
	return cmd
}

func roleCommand(role string, in, out *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, os.Stderr
	return cmd
}

// killBench is a process's stdio without a container around it.
type killBench struct {
	t      *testing.T
	keeper *store
	job    job
}

func newKillBench(t *testing.T, s Stdio) *killBench {
	t.Helper()
	watchD(t)
	dir := t.TempDir()
	for _, path := range []*string{&s.Stdin, &s.Stdout} {
		switch {
		case strings.Contains(*path, "://"):
			*path = strings.ReplaceAll(*path, "DIR", dir)
		case *path != "":
			*path = filepath.Join(dir, *path)
			must(t, unix.Mkfifo(*path, 0o600))
		}
	}
	return &killBench{t: t, keeper: newStore(t), job: job{Stdio: s, Options: IOOptions{Bundle: dir, Intent: "i"}}}
}

// begin opens the stdio and leaves it to the workers; launch starts the process.
func (b *killBench) begin(launch func(*IO) *exec.Cmd) *exec.Cmd {
	b.t.Helper()
	stdio, err := OpenIO(b.keeper, "p", b.job.Stdio, b.job.Options)
	must(b.t, err)
	cmd := launch(stdio)
	stdio.Detach()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		must(b.t, stdio.Close())
	})
	return cmd
}

// readStream checks the client's end of stdout, through the killings.
func (b *killBench) readStream(k *killings) <-chan error {
	b.t.Helper()
	f, err := os.OpenFile(b.job.Stdio.Stdout, os.O_RDONLY, 0)
	must(b.t, err)
	return k.check(f, f)
}

func (k *killings) check(r io.Reader, f *os.File) <-chan error {
	result := make(chan error, 1)
	go func() {
		defer f.Close()
		result <- k.tell(checkPattern(r, k.progress))
	}()
	return result
}

func (b *killBench) writeStream(k *killings) <-chan error {
	b.t.Helper()
	f, err := os.OpenFile(b.job.Stdio.Stdin, os.O_WRONLY, 0)
	must(b.t, err)
	result := make(chan error, 1)
	go func() {
		defer f.Close()
		result <- k.tell(writePattern(f, k.progress))
	}()
	return result
}

func TestKilledWorkersLoseNoPipeOutput(t *testing.T) {
	b := newKillBench(t, Stdio{Stdout: "out"})
	cmd := b.begin(func(stdio *IO) *exec.Cmd { return process(t, "write", nil, stdio.child[stdout]) })
	k := newKillings(t, b.keeper, b.job)
	read := b.readStream(k)
	last := k.run()
	defer last.kill()
	must(t, cmd.Wait())
	must(t, within(t, "the end of the stream", read))
	b.keeper.awaitEmpty(t)
}

func TestKilledWorkersLoseNoPipeInput(t *testing.T) {
	b := newKillBench(t, Stdio{Stdin: "in"})
	cmd := b.begin(func(stdio *IO) *exec.Cmd { return process(t, "check", stdio.child[stdin], nil) })
	k := newKillings(t, b.keeper, b.job)
	written := b.writeStream(k)
	k.run().kill()
	b.job.Options.StdinClosed = true
	last := startWorker(t, b.keeper, "copy", b.job)
	defer last.kill()
	must(t, within(t, "the writer's end", written))
	must(t, cmd.Wait())
	b.keeper.awaitEmpty(t)
}

func TestKilledWorkersLoseNoTerminalOutput(t *testing.T) {
	b := newKillBench(t, Stdio{Stdout: "out", Terminal: true})
	cmd := b.begin(func(*IO) *exec.Cmd { return b.terminalProcess("write") })
	k := newKillings(t, b.keeper, b.job)
	read := b.readStream(k)
	k.run().kill()
	b.job.Exited = true // it will have, by the time the terminal says so
	last := startWorker(t, b.keeper, "copy", b.job)
	defer last.kill()
	must(t, cmd.Wait())
	must(t, within(t, "the end of the stream", read))
	b.keeper.awaitEmpty(t)
}

func TestKilledWorkersLoseNoTerminalInput(t *testing.T) {
	b := newKillBench(t, Stdio{Stdin: "in", Terminal: true})
	cmd := b.begin(func(*IO) *exec.Cmd { return b.terminalProcess("check") })
	k := newKillings(t, b.keeper, b.job)
	written := b.writeStream(k)
	last := k.run()
	defer last.kill()
	must(t, within(t, "the writer's end", written))
	must(t, cmd.Wait())
}

// terminalProcess starts a process on a terminal whose master waits on the console
// socket, for the first worker to take it.
func (b *killBench) terminalProcess(role string) *exec.Cmd {
	b.t.Helper()
	p := newPty(b.t)
	p.dir = b.job.Options.Bundle
	slave := p.slave()
	defer slave.Close()
	p.deliver()
	return process(b.t, role, slave, slave)
}
