package lifecycle

import (
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/harness"
)

func TestInitOutput(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "out", harness.Config{Args: harness.Shell("echo to-out; echo to-err >&2")})
	_, err := c.Wait(ctx)
	harness.Check(t, err)
	harness.Check(t, c.Stdout.Await(limit, "to-out\n"))
	harness.Check(t, c.Stderr.Await(limit, "to-err\n"))
}

// More than any pipe or fifo holds, through init and exec, byte for byte.
func TestMuchOutput(t *testing.T) {
	const script = "i=0; while [ $i -lt 40000 ]; do echo line $i of the output; i=$((i+1)); done"
	var want strings.Builder
	for i := range 40000 {
		fmt.Fprintf(&want, "line %d of the output\n", i)
	}
	h, ctx := start(t)
	c := run(ctx, t, h, "much", harness.Config{Args: harness.Shell(script + "; echo the end; sleep 1000")})
	harness.Check(t, c.Stdout.Await(limit, "the end\n"))
	if got := c.Stdout.String(); got != want.String()+"the end\n" {
		t.Errorf("init: %d bytes arrived, want %d", len(got), want.Len())
	}
	r, err := c.Sh(ctx, "e1", script)
	harness.Check(t, err)
	if r.Stdout != want.String() {
		t.Errorf("exec: %d bytes arrived, want %d", len(r.Stdout), want.Len())
	}
}

// Input reaches the process whole, and CloseIO ends it.
func TestInputAndItsEnd(t *testing.T) {
	h, ctx := start(t)
	input := strings.Repeat("0123456789abcde\n", 20000)
	want := fmt.Sprintf("%x", sha256.Sum256([]byte(input)))

	initIn, initOut := io.Pipe()
	c := run(ctx, t, h, "in", harness.Config{Args: harness.Shell("sha256sum; sleep 1000"), Stdin: initIn})
	feed(t, initOut, input)
	harness.Check(t, c.Task.CloseIO(ctx, client.WithStdinCloser))
	harness.Check(t, c.Stdout.Await(limit, want))

	execIn, execOut := io.Pipe()
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sha256sum"}, Stdin: execIn})
	harness.Check(t, err)
	feed(t, execOut, input)
	harness.Check(t, e.CloseIO(ctx, client.WithStdinCloser))
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	if !strings.HasPrefix(r.Stdout, want) {
		t.Errorf("the exec's input has the sum %q, want %s", r.Stdout, want)
	}
}

// feed writes text and closes the client's end.
func feed(t *testing.T, w *io.PipeWriter, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	harness.Check(t, err)
	harness.Check(t, w.Close())
}

// A program that opens its input only after the client closed it still gets
// all of it, and its end.
func TestInputReadLate(t *testing.T) {
	h, ctx := start(t)
	in, out := io.Pipe()
	c := run(ctx, t, h, "late", harness.Config{Args: harness.Shell("read go; cat /dev/stdin; echo the end; sleep 1000"), Stdin: in})
	feed(t, out, "go\nsome more\n")
	harness.Check(t, c.Task.CloseIO(ctx, client.WithStdinCloser))
	harness.Check(t, c.Stdout.Await(limit, "some more\nthe end\n"))
}

func TestInitTerminal(t *testing.T) {
	h, ctx := start(t)
	in, out := io.Pipe()
	c := run(ctx, t, h, "tty", harness.Config{Args: []string{"/bin/sh"}, Terminal: true, Stdin: in})
	harness.Check(t, c.Task.Resize(ctx, 123, 45))
	say := func(line string) {
		_, err := io.WriteString(out, line+"\n")
		harness.Check(t, err)
	}
	say("stty size; echo size-$((1+1))")
	harness.Check(t, c.Stdout.Await(limit, "45 123\r\nsize-2\r\n"))
	harness.Check(t, c.Task.Resize(ctx, 80, 25))
	say("stty size; echo size-$((2+2))")
	harness.Check(t, c.Stdout.Await(limit, "25 80\r\nsize-4\r\n"))
	say("exit 9")
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 9 {
		t.Errorf("the shell ended with %d", exit.Code)
	}
	harness.Check(t, out.Close())
}

func TestExecTerminal(t *testing.T) {
	h, ctx := start(t)
	c := run(ctx, t, h, "tty", harness.Config{Args: harness.Sleep()})
	in, out := io.Pipe()
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: []string{"/bin/sh"}, Terminal: true, Stdin: in})
	harness.Check(t, err)
	harness.Check(t, e.Resize(ctx, 91, 17))
	_, err = io.WriteString(out, "stty size; tty; exit 11\n")
	harness.Check(t, err)
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	if r.Code != 11 || !strings.Contains(r.Stdout, "17 91\r\n/dev/pts/") {
		t.Errorf("the shell ended with %d and said %q", r.Code, r.Stdout)
	}
	harness.Check(t, out.Close())
}
