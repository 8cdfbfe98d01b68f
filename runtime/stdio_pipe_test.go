package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestExecOutputAndEnd(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary)
			c.run(Stdio{}, IOOptions{Direct: true})
			s := Stdio{Stdout: c.fifo("out"), Stderr: c.fifo("err")}
			stdio, pid := c.exec("a", s, "/bin/sh", "-c", "echo out; echo err >&2; exit 3")
			out, err := readAll(t, s.Stdout), readAll(t, s.Stderr)
			if status := reap(t, pid); status != 3 {
				t.Errorf("exit status %d, want 3", status)
			}
			must(t, stdio.Drained(c.ctx))
			if got := within(t, "end of stdout", out); got != "out\n" {
				t.Errorf("stdout %q", got)
			}
			if got := within(t, "end of stderr", err); got != "err\n" {
				t.Errorf("stderr %q", got)
			}
			c.store.awaitGone(t, "exec/a/stdout.fifo")
		})
	}
}

// A client that dies and comes back does not end stdin; CloseIO and its going do.
func TestStdinEndsOnlyAfterCloseStdin(t *testing.T) {
	watchD(t)
	c := newContainer(t)
	c.run(Stdio{}, IOOptions{Direct: true})
	s := Stdio{Stdin: c.fifo("in"), Stdout: c.fifo("out")}
	stdio, pid := c.exec("cat", s, "/bin/cat")
	out := openScreen(t, s.Stdout)
	for _, line := range []string{"one\n", "two\n"} {
		in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
		must(t, err)
		_, err = in.WriteString(line)
		must(t, err)
		must(t, in.Close())
		out.expect(line)
	}
	in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
	must(t, err)
	must(t, stdio.CloseStdin())
	must(t, stdio.CloseStdin())
	_, err = in.WriteString("written after CloseIO\n")
	must(t, err)
	out.expect("written after CloseIO\n")
	must(t, in.Close())
	if status := reap(t, pid); status != 0 {
		t.Errorf("cat ended with %d", status)
	}
	must(t, stdio.Drained(c.ctx))
	c.store.awaitGone(t, "exec/cat/stdin.fifo")
	if left := c.store.names(); len(left) > 0 {
		t.Errorf("left with the keeper: %v", left)
	}
}

// Programs open /dev/stdin by name after the client has closed; a fifo would block them.
func TestStdinOpenedByNameAfterItsEnd(t *testing.T) {
	c := newContainer(t, shell("cat; cat /proc/self/fd/0; echo end"))
	s := Stdio{Stdin: c.fifo("in"), Stdout: c.fifo("out")}
	stdio, pid := c.run(s, IOOptions{Direct: true})
	out := readAll(t, s.Stdout)
	must(t, stdio.CloseStdin())
	reap(t, pid)
	stdio.Exited()
	if got := within(t, "end of output", out); got != "end\n" {
		t.Errorf("output %q", got)
	}
}

// Nobody reads stdin: the client is told as a pipe tells it, and not blocked for ever.
func TestStdinOfAProcessThatHasEnded(t *testing.T) {
	watchD(t)
	c := newContainer(t)
	c.run(Stdio{}, IOOptions{Direct: true})
	s := Stdio{Stdin: c.fifo("in")}
	_, pid := c.exec("a", s, "/bin/true")
	in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
	must(t, err)
	defer in.Close()
	reap(t, pid)
	written := make(chan error, 1)
	go func() {
		_, err := in.Write(make([]byte, 1<<20))
		written <- err
	}()
	if err := within(t, "the end of the write", written); !errors.Is(err, unix.EPIPE) {
		t.Errorf("write to a process that has ended: %v", err)
	}
	c.store.awaitEmpty(t)
}

func TestBackgroundChildKeepsOutputOnlySoLong(t *testing.T) {
	c := newContainer(t)
	c.run(Stdio{}, IOOptions{Direct: true})
	s := Stdio{Stdout: c.fifo("out")}
	stdio, pid := c.exec("a", s, "/bin/sh", "-c", "echo here; sleep 1000 & exit 3")
	out := readAll(t, s.Stdout)
	if status := reap(t, pid); status != 3 {
		t.Errorf("exit status %d, want 3", status)
	}
	ctx, cancel := context.WithTimeout(c.ctx, 50*time.Millisecond)
	defer cancel()
	if err := stdio.Drained(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained with a child at the other end: %v", err)
	}
	must(t, stdio.Close())
	if got := within(t, "end of output", out); got != "here\n" {
		t.Errorf("output %q", got)
	}
	if left := c.store.names(); len(left) > 0 {
		t.Errorf("left with the keeper: %v", left)
	}
}

// Far more than a fifo holds, and nobody reads: nothing blocks but the writer, nothing
// is killed, nothing is lost.
func TestOutputWithoutReader(t *testing.T) {
	watchD(t)
	c := newContainer(t)
	c.run(Stdio{}, IOOptions{Direct: true})
	s := Stdio{Stdout: c.fifo("out")}
	stdio, pid := c.exec("a", s, "/bin/sh", "-c", "head -c 300000 /dev/zero; echo end; exit 4")
	await(t, "the fifo is full", func() bool {
		f, err := c.store.Fetch("exec/a/stdout.fifo")
		must(t, err)
		defer f.Close()
		n, err := unread(f)
		must(t, err)
		return n == 65536
	})
	got := within(t, "end of output", func() <-chan string {
		out := readAll(t, s.Stdout)
		if status := reap(t, pid); status != 4 {
			t.Errorf("exit status %d, want 4", status)
		}
		must(t, stdio.Drained(c.ctx))
		return out
	}())
	if len(got) != 300004 || !strings.HasSuffix(got, "end\n") {
		t.Errorf("%d bytes arrived, want 300004", len(got))
	}
}

func TestWrongPathsAreRefused(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "file"), filepath.Join(dir, "fifo")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, unix.Mkfifo(fifo, 0o600))
	for _, c := range []struct {
		path string
		is   func(error) bool
	}{
		{filepath.Join(dir, "missing"), errdefs.IsInvalidArgument},
		{file, errdefs.IsInvalidArgument},
		{"/dev/zero", errdefs.IsInvalidArgument},
		{"gopher:///tmp/log", errdefs.IsInvalidArgument},
	} {
		for _, s := range []Stdio{{Stdin: c.path, Stdout: fifo}, {Stdout: c.path, Stderr: fifo}, {Stdout: fifo, Stderr: c.path}, {Stdout: c.path, Terminal: true}} {
			for _, direct := range []bool{true, false} {
				_, err := OpenIO(newStore(t), "p", s, IOOptions{Direct: direct, Bundle: dir, Intent: "i"})
				if !c.is(err) || !strings.Contains(err.Error(), c.path) {
					t.Errorf("%+v: %v", s, err)
				}
			}
		}
	}
}

// Nothing of a closed IO is left in the worker either.
func TestCloseEndsEverything(t *testing.T) {
	dir := t.TempDir()
	s := Stdio{Stdin: dir + "/in", Stdout: dir + "/out", Stderr: dir + "/err"}
	for _, path := range []string{s.Stdin, s.Stdout, s.Stderr} {
		must(t, unix.Mkfifo(path, 0o600))
	}
	descriptors := func() int {
		open, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(open)
	}
	goroutines, files := goruntime.NumGoroutine(), descriptors()
	for _, terminal := range []bool{false, true} {
		for _, direct := range []bool{false, true} {
			s.Terminal = terminal
			keeper := newStore(t)
			o := IOOptions{Direct: direct, Bundle: dir, Intent: "i"}
			stdio, err := OpenIO(keeper, "p", s, o)
			must(t, err)
			if direct && !terminal {
				_, err := stdio.child[stdout].WriteString("unread")
				must(t, err)
			}
			stdio.Exited()
			again, err := ResumeIO(keeper, "p", s, o)
			must(t, err)
			again.Exited()
			stdio.Detach()
			must(t, again.Close())
			must(t, again.Close())
		}
	}
	await(t, "the goroutines have ended", func() bool { return goruntime.NumGoroutine() <= goroutines })
	await(t, "the descriptors are closed", func() bool { return descriptors() <= files })
}

// A worker can die after each descriptor it stored; none of these states may hurt.
func TestResumeOfHalfAnOpen(t *testing.T) {
	dir := t.TempDir()
	s := Stdio{Stdin: dir + "/in", Stdout: dir + "/out", Stderr: dir + "/err"}
	for _, path := range []string{s.Stdin, s.Stdout, s.Stderr} {
		must(t, unix.Mkfifo(path, 0o600))
	}
	for _, s.Terminal = range []bool{false, true} {
		for _, direct := range []bool{false, true} {
			for stored := 0; ; stored++ {
				keeper := &dyingKeeper{store: newStore(t), left: stored}
				o := IOOptions{Direct: direct, Bundle: dir, Intent: "i"}
				stdio, err := OpenIO(keeper, "p", s, o)
				keeper.left = 100
				if err == nil {
					must(t, stdio.Close())
					break
				}
				stdio, err = ResumeIO(keeper, "p", s, o)
				must(t, err)
				must(t, stdio.Close())
			}
		}
	}
}

// dyingKeeper stores only so many descriptors; what a dead worker would not do is not
// done: dropping.
type dyingKeeper struct {
	*store
	left int
}

var errDead = errors.New("this worker is dead")

func (k *dyingKeeper) Store(name string, f *os.File) error {
	if k.left == 0 {
		return errDead
	}
	k.left--
	return k.store.Store(name, f)
}

func (k *dyingKeeper) Drop(prefix string) error {
	if k.left == 0 {
		return errDead
	}
	return k.store.Drop(prefix)
}
