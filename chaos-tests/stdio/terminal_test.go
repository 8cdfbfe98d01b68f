package stdio

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

// A process has a terminal wherever that is copied to, and to nowhere.
func TestTerminalThroughEach(t *testing.T) {
	harness.NeedsPerdure(t) // the stock shim copies no terminal to a file
	h, ctx := start(t)
	for _, scheme := range []string{"file", "binary", "binary-v2", ""} {
		t.Run("to-"+scheme, func(t *testing.T) {
			dir := t.TempDir()
			to := uri(scheme, program(t), loggerQuery(map[string]string{"binary": "closes", "binary-v2": "ready"}[scheme], dir), true)
			switch scheme {
			case "file":
				to = uri(scheme, dir+"/stdout", "", true)
			case "":
				to = func(string) (cio.IO, error) { return cio.Load(cio.NewFIFOSet(cio.Config{Terminal: true}, nil)) }
			}
			script := harness.Shell("test -t 0 -a -t 1 -a -t 2 && seq 500 && exit 6")
			c := run(ctx, t, h, "init"+scheme, harness.Config{Args: script, Terminal: true, IO: to})
			end(ctx, t, c, 6)
			c = run(ctx, t, h, "idle"+scheme, harness.Config{Args: harness.Sleep()})
			e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: script, Terminal: true, IO: to})
			harness.Check(t, err)
			if r, err := e.Finish(ctx); err != nil || r.Code != 6 {
				t.Errorf("the exec ended with %d: %v", r.Code, err)
			}
			if scheme == "" {
				return
			}
			got := content(t, dir+"/stdout")
			if lines := strings.Count(got, "\r\n"); lines != 1000 || !strings.HasSuffix(got, "\r\n500\r\n") {
				t.Errorf("%d lines of 1000 arrived", lines)
			}
		})
	}
}

// Case 17: a size is set or refused; nothing ends by it.
func TestResizeAtEveryTime(t *testing.T) {
	h, ctx := start(t)
	in, out := io.Pipe()
	c, err := h.Create(ctx, "sized", harness.Config{Args: []string{"/bin/sh"}, Terminal: true, Stdin: in})
	harness.Check(t, err)
	harness.Check(t, c.Task.Resize(ctx, 90, 30)) // created: its terminal is there
	harness.Check(t, c.Task.Start(ctx))
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Sleep(), Terminal: true})
	harness.Check(t, err)
	before := e.Resize(ctx, 90, 30)
	if before != nil && !strings.Contains(before.Error(), "no terminal") {
		t.Errorf("before its start: %v", before)
	}
	harness.Check(t, e.Start(ctx))
	var many sync.WaitGroup
	for i := range 200 {
		p := []client.Process{c.Task, e}[i%2]
		many.Go(func() {
			if err := p.Resize(ctx, uint32(i), uint32(i)); err != nil {
				t.Errorf("resize of a running process: %v", err)
			}
		})
	}
	many.Wait()
	harness.Check(t, c.Task.Resize(ctx, 111, 22))
	_, err = fmt.Fprintln(out, "stty size")
	harness.Check(t, err)
	harness.Check(t, c.Stdout.Await(limit, "22 111\r\n"))
	harness.Check(t, e.Kill(ctx, 9))
	_, err = e.AwaitExit(ctx)
	harness.Check(t, err)
	if err := e.Resize(ctx, 10, 10); err == nil {
		t.Error("the terminal of an exec that has ended was resized")
	}
	_, err = e.Delete(ctx)
	harness.Check(t, err)
	if err := e.Resize(ctx, 10, 10); err == nil {
		t.Error("the terminal of an exec that is deleted was resized")
	}
	_, err = fmt.Fprintln(out, "exit 5")
	harness.Check(t, err)
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	if err := c.Task.Resize(ctx, 10, 10); err == nil && daemon.Runtime() != harness.Stock { // which has the terminal still
		t.Error("the terminal of an init that has ended was resized")
	}
	harness.Check(t, out.Close())
	harness.Check(t, c.DeleteTask(ctx))
}
