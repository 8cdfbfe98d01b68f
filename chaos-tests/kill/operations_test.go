package kill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/harness"
)

// operation is one thing that clients do, from its first call to its last.
type operation struct {
	name string
	do   func(context.Context, *load, *rand.Rand, *harness.Container) error
}

// An operation that is listed twice is done twice as often.
var operations = []operation{
	{"exec", execWithOutput},
	{"exec", execWithOutput},
	{"exec with a terminal", execWithTerminal},
	{"exec with input", execWithInput},
	{"exec that is killed", execKilled},
	{"container that ends", containerThatEnds},
	{"container that is killed", containerKilled},
}

// finish waits for an exec's end, deletes it, and compares what it said.
func (l *load) finish(ctx context.Context, c *harness.Container, e *harness.Exec, code uint32, stdout, stderr string) error {
	r, err := e.Finish(ctx)
	if l.step(err) != nil {
		return err
	}
	l.exec(c, e.ID(), r)
	switch {
	case r.Code != code:
		return fmt.Errorf("exec %s ended with %d, want %d", e.ID(), r.Code, code)
	case r.Stdout != stdout:
		return fmt.Errorf("exec %s: stdout is %s", e.ID(), differ(r.Stdout, stdout))
	case r.Stderr != stderr:
		return fmt.Errorf("exec %s: stderr is %s", e.ID(), differ(r.Stderr, stderr))
	}
	return nil
}

// differ says where two texts begin to differ.
func differ(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d bytes, want %d; from byte %d: %.60q, want %.60q", len(got), len(want), i, got[i:], want[i:])
}

// begin adds an exec and starts it.
func (l *load) begin(ctx context.Context, c *harness.Container, cfg harness.ExecConfig) (*harness.Exec, error) {
	e, err := c.AddExec(ctx, cfg)
	if l.step(err) != nil {
		return nil, err
	}
	if err := l.step(e.Start(ctx)); err != nil {
		return nil, fmt.Errorf("start exec %s: %w", cfg.ID, err)
	}
	return e, nil
}

// lines returns what `seq n` prints, each line ended by end.
func lines(n int, end string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "%d%s", i, end)
	}
	return b.String()
}

func execWithOutput(ctx context.Context, l *load, random *rand.Rand, c *harness.Container) error {
	id, code, n := l.name("e"), l.code(), random.IntN(20000)
	e, err := l.begin(ctx, c, harness.ExecConfig{ID: id, Args: []string{
		"/bin/sh", "-c", mark(id) + fmt.Sprintf("seq %d; echo %s >&2; exit %d", n, id, code),
	}})
	if err != nil {
		return err
	}
	return l.finish(ctx, c, e, code, lines(n, "\n"), id+"\n")
}

func execWithTerminal(ctx context.Context, l *load, random *rand.Rand, c *harness.Container) error {
	id, code, n := l.name("t"), l.code(), random.IntN(3000)
	e, err := l.begin(ctx, c, harness.ExecConfig{ID: id, Terminal: true, Args: []string{
		"/bin/sh", "-c", mark(id) + fmt.Sprintf("seq %d; exit %d", n, code),
	}})
	if err != nil {
		return err
	}
	return l.finish(ctx, c, e, code, lines(n, "\r\n"), "")
}

func execWithInput(ctx context.Context, l *load, random *rand.Rand, c *harness.Container) error {
	id, code, input := l.name("i"), l.code(), lines(random.IntN(20000), "\n")
	in, out := io.Pipe()
	defer in.Close()
	e, err := l.begin(ctx, c, harness.ExecConfig{ID: id, Stdin: in, Args: []string{
		"/bin/sh", "-c", mark(id) + fmt.Sprintf("cat; exit %d", code),
	}})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = out.CloseWithError(ctx.Err()) })
	defer stop()
	if _, err := io.WriteString(out, input); err != nil {
		return fmt.Errorf("input of exec %s: %w", id, err)
	}
	if err := errors.Join(out.Close(), l.step(e.CloseIO(ctx, client.WithStdinCloser))); err != nil {
		return fmt.Errorf("close input of exec %s: %w", id, err)
	}
	return l.finish(ctx, c, e, code, input, "")
}

func execKilled(ctx context.Context, l *load, _ *rand.Rand, c *harness.Container) error {
	id := l.name("k")
	e, err := l.begin(ctx, c, harness.ExecConfig{ID: id, Args: []string{
		"/bin/sh", "-c", mark(id) + "echo ready; exec sleep 1000",
	}})
	if err != nil {
		return err
	}
	if err := e.Stdout.Await(opLimit, "ready\n"); err != nil {
		return err
	}
	if err := l.step(e.Kill(ctx, syscall.SIGKILL)); err != nil {
		return fmt.Errorf("kill exec %s: %w", id, err)
	}
	return l.finish(ctx, c, e, 137, "ready\n", "")
}

// start creates and starts a container of its own.
func (l *load) start(ctx context.Context, id string, terminal bool, script string) (*harness.Container, error) {
	c, err := l.h.Create(ctx, id, harness.Config{
		Args: []string{"/bin/sh", "-c", mark(id) + script}, Terminal: terminal, Pod: l.pod, Mounts: l.mount(),
	})
	if l.step(err) != nil {
		return nil, err
	}
	l.began(c)
	if err := l.step(c.Task.Start(ctx)); err != nil {
		return nil, fmt.Errorf("start %s: %w", id, err)
	}
	return c, nil
}

// remove waits for a container's end and deletes it.
func (l *load) remove(ctx context.Context, c *harness.Container, code uint32) error {
	exit, err := c.Wait(ctx)
	if l.step(err) != nil {
		return err
	}
	if err := c.CheckJournal(ctx); err != nil {
		return err
	}
	l.leaves(c)
	deleted, err := c.Task.Delete(ctx)
	if l.step(err) != nil {
		return fmt.Errorf("delete %s: %w", c.ID, err)
	}
	if exit.Code != code || deleted.ExitCode() != code || !deleted.ExitTime().Equal(exit.At) {
		return fmt.Errorf("%s: Wait says %d at %v, Delete %d at %v, want %d",
			c.ID, exit.Code, exit.At, deleted.ExitCode(), deleted.ExitTime(), code)
	}
	l.gone(c, code)
	return l.step(c.Remove(ctx))
}

func containerThatEnds(ctx context.Context, l *load, random *rand.Rand, _ *harness.Container) error {
	id, code, n, terminal := l.name("c"), l.code(), random.IntN(5000), random.IntN(2) == 0
	want := lines(n, "\n")
	if terminal {
		want = lines(n, "\r\n")
	}
	c, err := l.start(ctx, id, terminal, fmt.Sprintf("seq %d; exit %d", n, code))
	if err != nil {
		return err
	}
	if want != "" {
		if err := c.Stdout.Await(20*time.Second, want); err != nil {
			return fmt.Errorf("%s: stdout is %s", id, differ(c.Stdout.String(), want))
		}
	}
	if err := l.remove(ctx, c, code); err != nil {
		return err
	}
	if got := c.Stdout.String(); got != want {
		return fmt.Errorf("%s: stdout is %s", id, differ(got, want))
	}
	return nil
}

func containerKilled(ctx context.Context, l *load, random *rand.Rand, _ *harness.Container) error {
	id, sig, code := l.name("d"), syscall.SIGKILL, uint32(137)
	if random.IntN(2) == 0 {
		sig, code = syscall.SIGTERM, 143
	}
	c, err := l.start(ctx, id, false, "trap 'exit 143' TERM; echo ready; while :; do sleep 1000 & wait $!; done")
	if err != nil {
		return err
	}
	if err := c.Stdout.Await(20*time.Second, "ready\n"); err != nil {
		return err
	}
	if err := l.step(c.Task.Kill(ctx, sig)); err != nil {
		return fmt.Errorf("kill %s: %w", id, err)
	}
	return l.remove(ctx, c, code)
}
