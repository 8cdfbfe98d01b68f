package stdio

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// alive reports whether a logger is.
func alive(pid int) bool {
	p, err := proc.Read(pid)
	return err == nil && p.State != 'Z'
}

func TestLoggerOfInitAndExecs(t *testing.T) {
	for scheme, mode := range map[string]string{"binary": "closes", "binary-v2": "ready"} {
		t.Run(scheme, func(t *testing.T) {
			h, ctx := start(t)
			dir, execDir := t.TempDir(), t.TempDir()
			c := run(ctx, t, h, "logged", harness.Config{
				Args: harness.Shell("echo out; echo err >&2; exec sleep 1000"), IO: uri(scheme, program(t), loggerQuery(mode, dir), false),
			})
			await(ctx, t, dir+"/stdout", "out\n")
			await(ctx, t, dir+"/stderr", "err\n")
			await(ctx, t, dir+"/called", "CONTAINER_ID=logged")
			await(ctx, t, dir+"/called", "CONTAINER_NAMESPACE="+h.Namespace)
			e, err := c.Exec(ctx, harness.ExecConfig{
				ID: "e1", Args: harness.Shell("seq 1000; exit 3"), IO: uri(scheme, program(t), loggerQuery(mode, execDir), false),
			})
			harness.Check(t, err)
			r, err := e.Finish(ctx)
			harness.Check(t, err)
			if got := content(t, execDir+"/stdout"); r.Code != 3 || !strings.HasSuffix(got, "\n999\n1000\n") {
				t.Errorf("after an exec that ended with %d its logger has %d bytes", r.Code, len(got))
			}
			await(ctx, t, execDir+"/called", "CONTAINER_ID=e1")
			for _, pid := range pids(t, execDir) {
				if alive(pid) {
					t.Errorf("logger %d of the deleted exec is alive", pid)
				}
			}
			harness.Check(t, c.DeleteTask(ctx))
			for _, pid := range pids(t, dir) {
				if alive(pid) {
					t.Errorf("logger %d of the deleted task is alive", pid)
				}
			}
		})
	}
}

// containerd's client makes loggers' URIs of a path and arguments.
func TestLoggerOfContainerdsClient(t *testing.T) {
	h, ctx := start(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "logger")
	harness.Check(t, os.WriteFile(path, []byte("#!/bin/sh\n# binary:// closes 5 to be ready\nexec 5>&-\nexec /bin/cat <&3 >>"+dir+"/$2\n"), 0o755))
	c := run(ctx, t, h, "scripted", harness.Config{Args: harness.Shell("echo by-script"), IO: cio.BinaryIO(path, map[string]string{"file": "out"})})
	await(ctx, t, dir+"/out", "by-script\n")
	end(ctx, t, c, 0)
}

// The logger is one process from Create to Delete, whatever becomes of workers.
func TestLoggerOverKills(t *testing.T) {
	harness.NeedsPerdure(t)
	for name, c := range map[string]struct {
		terminal   bool
		script     string
		size, step int64
	}{
		"pipe":     {false, "cat /input; exit 9", 64 << 20, 8 << 20},
		"terminal": {true, "stty -opost; cat /input; exit 9", 8 << 20, 512 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx := start(t)
			dir := t.TempDir()
			input, mount := bytes(t, h.Dir(), c.size)
			box := run(ctx, t, h, "killed", harness.Config{
				Args: harness.Shell(c.script), Terminal: c.terminal, Mounts: mounts(mount),
				IO: uri("binary-v2", program(t), loggerQuery("keeps", dir), c.terminal),
			})
			killAlong(ctx, t, box, dir+"/stdout", c.step, c.size)
			_, err := box.KillWorker(ctx)
			harness.Check(t, err)
			end(ctx, t, box, 9)
			same(t, dir+"/stdout", input)
			if all := pids(t, dir); len(all) != 1 || alive(all[0]) {
				t.Errorf("loggers: %v, alive: %v", all, len(all) > 0 && alive(all[0]))
			}
			if got := content(t, dir+"/ends"); got != "end of output\nterminated\n" {
				t.Errorf("the logger's end: %q", got)
			}
		})
	}
}

// A worker that is killed while its logger gets ready is followed by one that
// starts another; the first reads the end of its output, and goes.
func TestWorkerKilledWhileALoggerGetsReady(t *testing.T) {
	harness.NeedsPerdure(t)
	h, ctx := start(t)
	dir := t.TempDir()
	harness.Check(t, unix.Mkfifo(dir+"/gate", 0o600))
	gate, err := os.OpenFile(dir+"/gate", os.O_RDWR, 0)
	harness.Check(t, err)
	defer gate.Close()
	created := make(chan error, 1)
	var c *harness.Container
	go func() {
		var err error
		c, err = h.Create(ctx, "late", harness.Config{Args: harness.Shell("echo once"), IO: uri("binary-v2", program(t), loggerQuery("gated", dir), false)})
		created <- err
	}()
	await(ctx, t, dir+"/loggers", "\n")
	shim := proc.Shim{Runtime: "io.containerd.perdure.v2", Namespace: h.Namespace, Group: "late"}
	keeper, err := shim.Server()
	harness.Check(t, err)
	worker, err := proc.Worker(keeper)
	harness.Check(t, err)
	harness.Check(t, proc.Kill(ctx, worker, proc.IsWorker))
	_, err = gate.WriteString("\n\n\n")
	harness.Check(t, err)
	harness.Check(t, <-created)
	harness.Check(t, c.Task.Start(ctx))
	await(ctx, t, dir+"/stdout", "once\n")
	harness.Check(t, wait.Until(ctx, limit, "one logger", func() error {
		living := 0
		for _, pid := range pids(t, dir) {
			if alive(pid) {
				living++
			}
		}
		if living > 1 {
			return fmt.Errorf("there are %d", living)
		}
		return nil
	}))
	end(ctx, t, c, 0)
	if got := content(t, dir+"/stdout"); got != "once\n" {
		t.Errorf("%q is logged", got)
	}
}

// A worker that has nothing to do leaves, and the logger goes on.
func TestRestWithALogger(t *testing.T) {
	harness.NeedsPerdure(t)
	h, ctx := start(t, "PERDURE_IDLE_MS=100")
	gates, err := h.NewGates("go")
	harness.Check(t, err)
	dir := t.TempDir()
	c := run(ctx, t, h, "quiet", harness.Config{
		Args:   harness.Shell(gates.Await("go") + "echo at rest; " + gates.Await("go") + "head -c 200000 /dev/zero; echo; echo bye; exit 6"),
		Mounts: mounts(gates.Mount()), IO: uri("binary", program(t), loggerQuery("closes", dir), false),
	})
	harness.Check(t, c.AwaitRest(ctx))
	harness.Check(t, gates.Open("go"))
	await(ctx, t, dir+"/stdout", "at rest\n")
	keeper, err := c.Keeper()
	harness.Check(t, err)
	if worker, err := proc.Worker(keeper); err == nil {
		t.Errorf("output that goes to a logger has started worker %d", worker)
	}
	// The logger's end brings a worker: what is written now is nobody's.
	harness.Check(t, proc.Kill(ctx, pids(t, dir)[0], func(p proc.Process) bool { return p.Mentions(dir) }))
	harness.Check(t, gates.Open("go"))
	end(ctx, t, c, 6)
}

// The process neither blocks nor gets SIGPIPE when its logger is gone, over a
// pipe and a terminal. (With the stock shim it does, or it blocks.)
func TestLoggerThatIsKilled(t *testing.T) {
	harness.NeedsPerdure(t)
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprint(terminal), func(t *testing.T) {
			h, ctx := start(t)
			gates, err := h.NewGates("go")
			harness.Check(t, err)
			dir := t.TempDir()
			c := run(ctx, t, h, "bereft", harness.Config{
				Args:     harness.Shell("echo first; " + gates.Await("go") + "head -c 1000000 /dev/zero; exit 8"),
				Terminal: terminal, Mounts: mounts(gates.Mount()), IO: uri("binary", program(t), loggerQuery("ready", dir), terminal),
			})
			await(ctx, t, dir+"/stdout", "first")
			harness.Check(t, proc.Kill(ctx, pids(t, dir)[0], func(p proc.Process) bool { return p.Mentions(dir) }))
			harness.Check(t, gates.Open("go"))
			if _, err := c.KillWorker(ctx); err != nil {
				t.Error(err)
			}
			end(ctx, t, c, 8)
		})
	}
}

// One that does not end by itself is terminated, and then killed; a worker that
// dies meanwhile is followed by one that does.
func TestLoggerThatDoesNotEnd(t *testing.T) {
	harness.NeedsPerdure(t)
	h, ctx := start(t)
	dir := t.TempDir()
	c := run(ctx, t, h, "stubborn", harness.Config{Args: harness.Shell("echo out"), IO: uri("binary-v2", program(t), loggerQuery("stubborn", dir), false)})
	await(ctx, t, dir+"/stdout", "out\n")
	_, err := c.Wait(ctx)
	harness.Check(t, err)
	began := time.Now()
	deleted := make(chan error, 1)
	go func() { deleted <- c.DeleteTask(ctx) }()
	await(ctx, t, dir+"/ends", "terminated, and stays\n")
	if pid := pids(t, dir)[0]; !alive(pid) {
		t.Error("the logger was killed at once")
	}
	_, err = c.KillWorker(ctx)
	harness.Check(t, err)
	harness.Check(t, <-deleted)
	t.Logf("measured: its Delete took %v", time.Since(began).Round(time.Millisecond))
	if pid := pids(t, dir)[0]; alive(pid) {
		t.Errorf("logger %d is alive", pid)
	}
}

func TestLoggersAndFilesThatCannotBeUsed(t *testing.T) {
	harness.NeedsPerdure(t) // the stock shim's errors are others
	h, ctx := start(t)
	dir := t.TempDir()
	harness.Check(t, os.WriteFile(dir+"/text", []byte("no program"), 0o600))
	self := program(t)
	for name, c := range map[string]struct {
		scheme, path, query string
		says                []string
	}{
		"missing":               {"binary", dir + "/none", "", []string{dir + "/none", "no such file"}},
		"not executable":        {"binary-v2", dir + "/text", "", []string{dir + "/text", "permission denied"}},
		"ends at once":          {"binary", self, loggerQuery("fails", dir), []string{self, "ended before it was ready", "exit status 7"}},
		"never ready":           {"binary-v2", self, loggerQuery("never", dir), []string{self, "not ready within 10s"}},
		"closes without a byte": {"binary-v2", self, loggerQuery("closes", dir), []string{self, "has to write a byte"}},
		"a directory":           {"file", dir, "", []string{"stdout", dir, "directory"}},
		"another scheme":        {"https", "/x", "", []string{"stdout", "https", "file:///path", "binary:///path"}},
		"a relative file":       {"file", "", "", []string{"stdout", "not absolute"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			id := strings.ReplaceAll(name, " ", "-")
			for _, terminal := range []bool{false, true} {
				if terminal && name == "never ready" {
					continue // ten seconds are enough
				}
				c1, err := h.Create(ctx, id, harness.Config{IO: uri(c.scheme, c.path, c.query, terminal), Terminal: terminal})
				for _, text := range c.says {
					if err == nil || !strings.Contains(err.Error(), text) {
						t.Errorf("%v does not say %q", err, text)
					}
				}
				if mistake := c.path != self; errdefs.IsInvalidArgument(err) != mistake {
					t.Errorf("%v: an invalid argument? %v", err, mistake)
				}
				harness.Check(t, c1.Remove(ctx))
			}
			// Nothing is left, and the id can be used.
			for _, pid := range pids(t, dir) {
				if alive(pid) {
					t.Errorf("logger %d is alive", pid)
				}
			}
			end(ctx, t, run(ctx, t, h, id, harness.Config{Args: harness.Shell("exit 2")}), 2)
		})
	}
	// An exec that cannot be started is no harm to its container.
	c := run(ctx, t, h, "unharmed", harness.Config{Args: harness.Sleep()})
	e, err := c.AddExec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("true"), IO: uri("binary", dir+"/none", "", false)})
	harness.Check(t, err)
	if err := e.Start(ctx); err == nil || !strings.Contains(err.Error(), dir+"/none") {
		t.Errorf("start: %v", err)
	}
	if r, err := c.Sh(ctx, "e2", "exit 4"); err != nil || r.Code != 4 {
		t.Errorf("%v, %v", r, err)
	}
	if err := c.Kill(ctx, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
