package runtime

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDirectOutputReachesTheReaderAndEnds(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary, shell("echo out; echo err >&2; exit 7"))
			s := Stdio{Stdout: c.fifo("out"), Stderr: c.fifo("err")}
			stdio, pid := c.create(s, IOOptions{Direct: true})
			out, err := readAll(t, s.Stdout), readAll(t, s.Stderr)
			must(t, c.Start(c.ctx, "start"))
			if status := reap(t, pid); status != 7 {
				t.Errorf("exit status %d, want 7", status)
			}
			stdio.Exited()
			must(t, stdio.Drained(c.ctx))
			if got := within(t, "end of stdout", out); got != "out\n" {
				t.Errorf("stdout %q", got)
			}
			if got := within(t, "end of stderr", err); got != "err\n" {
				t.Errorf("stderr %q", got)
			}
			c.store.awaitEmpty(t)
		})
	}
}

// Programs reopen /dev/stdout by name (nginx logs); runc gives the fifo to the user.
func TestDirectOutputIsReopenedByName(t *testing.T) {
	c := newContainer(t, user(1000), shell("echo by-name >/proc/self/fd/1"))
	s := Stdio{Stdout: c.fifo("out")}
	stdio, pid := c.create(s, IOOptions{Direct: true})
	out := readAll(t, s.Stdout)
	must(t, c.Start(c.ctx, "start"))
	reap(t, pid)
	stdio.Exited()
	if got := within(t, "end of stdout", out); got != "by-name\n" {
		t.Errorf("stdout %q", got)
	}
}

// What a process wrote last, while nobody was reading, is there for whoever comes.
func TestLastWordsWaitForALateReader(t *testing.T) {
	for name, direct := range map[string]bool{"direct": true, "pipe": false} {
		t.Run(name, func(t *testing.T) {
			c := newContainer(t, shell("echo last words"))
			s := Stdio{Stdout: c.fifo("out"), Stderr: c.fifo("err")}
			stdio, pid := c.run(s, IOOptions{Direct: direct})
			reap(t, pid)
			stdio.Exited()
			must(t, stdio.Drained(c.ctx))
			await(t, "the silent stream is let go", func() bool { return !c.store.has("init/stderr.fifo") })
			if !c.store.has("init/stdout.fifo") {
				t.Fatal("unread output was let go")
			}
			// The next worker does the same.
			stdio.Detach()
			next, err := ResumeIO(c.store, "init", s, stdio.opts)
			must(t, err)
			c.ios = append(c.ios, next)
			next.Exited()
			if got := within(t, "end of output", readAll(t, s.Stdout)); got != "last words\n" {
				t.Errorf("stdout %q", got)
			}
			c.store.awaitEmpty(t)
		})
	}
}

// A process is not blocked by our mode, and not killed by a reader that leaves.
func TestDirectWriterOutlivesItsReader(t *testing.T) {
	c := newContainer(t, shell("echo one; read x; echo two; exit 5"))
	s := Stdio{Stdin: c.fifo("in"), Stdout: c.fifo("out")}
	stdio, pid := c.create(s, IOOptions{Direct: true})
	reader, err := os.Open(s.Stdout)
	must(t, err)
	must(t, c.Start(c.ctx, "start"))
	buffer := make([]byte, 4)
	_, err = reader.Read(buffer)
	must(t, err)
	must(t, reader.Close())
	in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
	must(t, err)
	_, err = in.WriteString("\n")
	must(t, err)
	must(t, in.Close())
	if status := reap(t, pid); status != 5 {
		t.Errorf("exit status %d, want 5", status)
	}
	stdio.Exited()
	if got := within(t, "end of output", readAll(t, s.Stdout)); got != "two\n" {
		t.Errorf("stdout %q", got)
	}
}

func TestProcessSeesABlockingStdout(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(dir+"/out", 0o600))
	for _, direct := range []bool{true, false} {
		stdio, err := OpenIO(newStore(t), "p", Stdio{Stdin: "", Stdout: dir + "/out"}, IOOptions{Direct: direct})
		must(t, err)
		flags, err := unix.FcntlInt(stdio.child[stdout].Fd(), unix.F_GETFL, 0)
		must(t, err)
		if flags&unix.O_NONBLOCK != 0 {
			t.Errorf("direct %v: the process gets a non-blocking stdout", direct)
		}
		must(t, stdio.Close())
	}
}
