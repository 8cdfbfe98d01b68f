package runtime

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTerminal(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			watchD(t)
			c := newContainerOf(t, binary, terminal, shell("echo ready; read x; stty size; read y; echo got $y; exit 6"))
			s := Stdio{Stdin: c.fifo("in"), Stdout: c.fifo("out"), Terminal: true}
			stdio, pid := c.run(s, IOOptions{Direct: true})
			out := openScreen(t, s.Stdout)
			out.expect("ready\r\n")
			must(t, stdio.Resize(100, 30))
			in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
			must(t, err)
			defer in.Close()
			_, err = in.WriteString("\n")
			must(t, err)
			out.expect("30 100\r\n")

			// The next worker takes over in mid-session.
			stdio.Detach()
			next, err := ResumeIO(c.store, "init", s, stdio.opts)
			must(t, err)
			c.ios = append(c.ios, next)
			must(t, next.Started())
			_, err = in.WriteString("word\n")
			must(t, err)
			out.expect("got word\r\n")
			if status := reap(t, pid); status != 6 {
				t.Errorf("exit status %d, want 6", status)
			}
			next.Exited()
			must(t, next.Drained(c.ctx))
			c.store.awaitGone(t, "init/stdout.fifo")
			must(t, next.CloseStdin())
		})
	}
}

func TestExecTerminal(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary)
			c.run(Stdio{}, IOOptions{Direct: true})
			s := Stdio{Stdout: c.fifo("out"), Terminal: true}
			stdio, pid := c.exec("a", s, "/bin/sh", "-c", "test -t 0 -a -t 1 -a -t 2 && echo terminal")
			out := readAll(t, s.Stdout)
			reap(t, pid)
			stdio.Exited()
			if got := within(t, "end of output", out); got != "terminal\r\n" {
				t.Errorf("output %q", got)
			}
		})
	}
}

// Nobody watches: the process must not block when its terminal is full.
func TestTerminalWithoutStdout(t *testing.T) {
	c := newContainer(t, terminal, shell("head -c 300000 /dev/zero; exit 2"))
	stdio, pid := c.run(Stdio{Terminal: true}, IOOptions{})
	if status := reap(t, pid); status != 2 {
		t.Errorf("exit status %d, want 2", status)
	}
	must(t, stdio.Drained(c.ctx))
}

// A worker can die after each step by which the terminal comes to the keeper.
func TestTerminalIsFoundWhereverItIsQueued(t *testing.T) {
	for _, step := range []string{"queued on the listener", "queued on the connection", "stored"} {
		t.Run(step, func(t *testing.T) {
			c := newContainer(t, terminal, shell("echo hello"))
			s := Stdio{Stdout: c.fifo("out"), Terminal: true}
			intent := c.intent("create")
			stdio := c.openIO("init", s, IOOptions{Intent: intent})
			pid, err := c.Create(c.ctx, intent, stdio, nil)
			must(t, err)
			stdio.Detach()
			if step != "queued on the listener" {
				connection, err := c.store.Accept("init/console.listener", "init/console.connection")
				must(t, err)
				if step == "stored" {
					master, err := peekMaster(connection)
					must(t, err)
					must(t, unix.SetNonblock(int(master.Fd()), true))
					must(t, c.store.Store("init/console", master))
					closeAll(master)
				}
				closeAll(connection)
			}
			next, err := ResumeIO(c.store, "init", s, stdio.opts)
			must(t, err)
			c.ios = append(c.ios, next)
			must(t, next.Started())
			out := readAll(t, s.Stdout)
			must(t, c.Start(c.ctx, c.intent("start")))
			reap(t, pid)
			next.Exited()
			if got := within(t, "end of output", out); got != "hello\r\n" {
				t.Errorf("output %q", got)
			}
			c.store.awaitEmpty(t)
			if _, err := os.Stat(c.file(intent, "sock")); err == nil {
				t.Error("the console socket is left in the bundle")
			}
		})
	}
}

// An init system closes its terminal and opens it again: not the end.
func TestTerminalReopened(t *testing.T) {
	p := newPty(t)
	s := Stdio{Stdout: p.fifo("out"), Terminal: true}
	keeper := newStore(t)
	stdio := p.open(keeper, s)
	out := openScreen(t, s.Stdout)
	for _, line := range []string{"first", "second", "third"} {
		slave := p.slave()
		_, err := slave.WriteString(line)
		must(t, err)
		out.expect(line)
		must(t, slave.Close())
	}
	if !keeper.has("p/console") {
		t.Error("the terminal was given up between two openings")
	}
	stdio.Exited()
	must(t, stdio.Drained(t.Context()))
	keeper.awaitEmpty(t)
}

// A client that wants a terminal may name a stderr it never made.
func TestTerminalHasNoStderr(t *testing.T) {
	p := newPty(t)
	keeper := newStore(t)
	p.open(keeper, Stdio{Stdout: p.fifo("out"), Stderr: p.dir + "/none", Terminal: true})
	want := []string{"p/console", "p/stdout.fifo"}
	if got := keeper.names(); !slices.Equal(got, want) {
		t.Errorf("with the keeper: %v, want %v", got, want)
	}
}

func TestTerminalWithoutSplice(t *testing.T) {
	p := newPty(t)
	master, err := pollable(p.master(t))
	must(t, err)
	slave := p.slave()
	r, w, err := os.Pipe()
	must(t, err)
	done := make(chan error, 1)
	var gone atomic.Bool
	go func() {
		unsupported := func(int, int) (int, error) { return 0, unix.EINVAL }
		done <- (&pump{src: master, dst: w, gone: gone.Load, splice: unsupported}).run()
		closeAll(w)
	}()
	_, err = slave.WriteString("through memory")
	must(t, err)
	buffer := make([]byte, 64)
	n, err := r.Read(buffer)
	must(t, err)
	must(t, slave.Close())
	if got := string(buffer[:n]); got != "through memory" {
		t.Errorf("got %q", got)
	}
	gone.Store(true)
	must(t, master.SetReadDeadline(time.Unix(1, 0)))
	must(t, within(t, "end of the terminal", done))
	closeAll(r, master)
}
