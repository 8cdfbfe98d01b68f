package runtime

import (
	"io"
	"os"
	"testing"
	"time"
)

// readAll reads a fifo to its end; the reader is there when readAll returns.
func readAll(t *testing.T, path string) <-chan string {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	must(t, err)
	result := make(chan string, 1)
	go func() {
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			t.Error(err)
		}
		result <- string(text)
	}()
	return result
}

func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s in vain: %s", patience, what)
		panic("unreachable")
	}
}

func TestDirectOutputReachesTheReaderAndEnds(t *testing.T) {
	c := newContainer(t, shell("echo out; echo err >&2; exit 7"))
	s := Stdio{Stdout: c.fifo("out"), Stderr: c.fifo("err")}
	stdio, pid := c.create(s, IOOptions{Direct: true})
	out, err := readAll(t, s.Stdout), readAll(t, s.Stderr)
	must(t, c.Start(c.ctx, "start"))
	if status := reap(t, pid); status != 7 {
		t.Errorf("exit status %d, want 7", status)
	}
	stdio.Exited()
	if got := within(t, "end of stdout", out); got != "out\n" {
		t.Errorf("stdout %q", got)
	}
	if got := within(t, "end of stderr", err); got != "err\n" {
		t.Errorf("stderr %q", got)
	}
}
