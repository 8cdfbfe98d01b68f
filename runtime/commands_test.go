package runtime

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestLifecycleAndItsErrors(t *testing.T) {
	c := newContainer(t, args("/bin/sleep", "1000"))
	if _, err := c.State(c.ctx); !errdefs.IsNotFound(err) {
		t.Errorf("state of an unknown container: %v", err)
	}
	must(t, c.Delete(c.ctx, "delete-0", true))
	stdio, pid := c.create(Stdio{}, IOOptions{Direct: true})
	if _, err := c.Create(c.ctx, "create-again", stdio, nil); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}
	if got, err := c.State(c.ctx); err != nil || got != (Status{"created", pid}) {
		t.Errorf("state %+v, %v", got, err)
	}
	must(t, c.Start(c.ctx, "start-1"))
	if err := c.Start(c.ctx, "start-2"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "already running") {
		t.Errorf("second start: %v", err)
	}
	if err := c.Delete(c.ctx, "delete-1", false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete of a running container: %v", err)
	}
	must(t, c.KillAll(c.ctx, "kill-1", int(unix.SIGKILL)))
	if status := reap(t, pid); status != 137 {
		t.Errorf("exit status %d", status)
	}
	if err := c.Kill(c.ctx, "kill-2", int(unix.SIGKILL)); !errdefs.IsNotFound(err) {
		t.Errorf("kill of a stopped container: %v", err)
	}
	must(t, stdio.Close())
	must(t, c.Delete(c.ctx, "delete-2", false))
	must(t, c.Delete(c.ctx, "delete-2", false))
}

// containerd removes a bundle before it asks for the deletion of what it lost sight of.
func TestDeleteFromARemovedBundle(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary)
			_, pid := c.run(Stdio{}, IOOptions{Direct: true})
			must(t, os.RemoveAll(c.Bundle))
			if got, err := c.State(c.ctx); err != nil || got != (Status{"running", pid}) {
				t.Errorf("state %+v, %v", got, err)
			}
			if err := c.Delete(c.ctx, "delete-1", false); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("delete of a running container: %v", err)
			}
			must(t, c.Delete(c.ctx, "delete-2", true))
			if status := reap(t, pid); status != 137 {
				t.Errorf("exit status %d", status)
			}
			if _, err := c.State(c.ctx); !errdefs.IsNotFound(err) {
				t.Errorf("state of a deleted container: %v", err)
			}
			must(t, c.Delete(c.ctx, "delete-3", true))
			if _, err := os.Lstat(c.Bundle); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the bundle is back: %v", err)
			}
		})
	}
}

func TestExecErrors(t *testing.T) {
	c := newContainer(t)
	_, pid := c.run(Stdio{}, IOOptions{Direct: true})
	stdio := c.openIO("exec/a", Stdio{}, IOOptions{Intent: "exec-a"})
	process := []byte(`{"args":["/bin/none"],"cwd":"/","user":{"uid":0,"gid":0}}`)
	if _, err := c.Exec(c.ctx, "exec-a", process, stdio, nil); err == nil || !strings.Contains(err.Error(), "/bin/none") {
		t.Errorf("exec of a missing program: %v", err)
	}
	must(t, unix.Kill(pid, unix.SIGKILL))
	reap(t, pid)
	stdio = c.openIO("exec/b", Stdio{}, IOOptions{Intent: "exec-b"})
	if _, err := c.Exec(c.ctx, "exec-b", process, stdio, nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec in a stopped container: %v", err)
	}
}

// An error of launched is the last moment at which nothing has happened.
func TestNothingHappensBeforeLaunched(t *testing.T) {
	c := newContainer(t)
	full := errors.New("journal is full")
	for _, s := range []Stdio{{}, {Terminal: true}} {
		stdio := c.openIO("init", s, IOOptions{Intent: "create-1"})
		if _, err := c.Create(c.ctx, "create-1", stdio, func() error { return full }); !strings.Contains(err.Error(), full.Error()) {
			t.Errorf("create: %v", err)
		}
		if _, err := c.State(c.ctx); !errdefs.IsNotFound(err) {
			t.Errorf("something was created: %v", err)
		}
		must(t, stdio.Close())
	}
}

func TestFilesOfAnIntent(t *testing.T) {
	c := newContainer(t)
	_, init := c.run(Stdio{}, IOOptions{Direct: true})
	_, pid := c.exec("a", Stdio{Terminal: true}, "/bin/sleep", "1000")
	intent := "exec-3"
	if got, ok := c.PidFile(intent); !ok || got != pid {
		t.Errorf("pid file of %s: %d, %v; want %d", intent, got, ok, pid)
	}
	text, err := os.ReadFile(c.file(intent, "json"))
	must(t, err)
	var process specs.Process
	must(t, json.Unmarshal(text, &process))
	if !process.Terminal || process.Args[0] != "/bin/sleep" {
		t.Errorf("process document %s", text)
	}
	for _, intent := range []string{"create-1", "start-2", intent} {
		c.Clean(intent)
	}
	left, _ := filepath.Glob(filepath.Join(c.Bundle, intentDir, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "create-1.pid" {
		t.Errorf("files are left: %v, want the init's pid", left)
	}
	if text, err := os.ReadFile(filepath.Join(c.Bundle, initPid)); err != nil || string(text) != strconv.Itoa(init) {
		t.Errorf("%s says %q, %v; want %d", initPid, text, err, init)
	}
	must(t, unix.Kill(pid, unix.SIGKILL))
	reap(t, pid)
}

// The marker of an intent is for the runtime and its hooks, never for the container.
func TestMarkerIsHidden(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary, shell("cat /proc/*/environ"))
			s := Stdio{Stdout: c.fifo("out")}
			stdio, pid := c.create(s, IOOptions{Direct: true})
			out := readAll(t, s.Stdout)
			must(t, c.Start(c.ctx, "start"))
			reap(t, pid)
			stdio.Exited()
			if got := within(t, "end of output", out); strings.Contains(got, markerEnv) || !strings.Contains(got, "PATH=") {
				t.Errorf("environments in the container: %q", got)
			}
		})
	}
}

// A bundle path longer than a socket address, which containerd's are.
func TestTerminalInALongPath(t *testing.T) {
	c := newContainer(t, terminal, shell("stty size"))
	long := filepath.Join(filepath.Dir(c.Bundle), strings.Repeat("l", 150))
	must(t, os.Rename(c.Bundle, long))
	c.Bundle = long
	s := Stdio{Stdout: c.fifo("out"), Terminal: true}
	stdio, pid := c.create(s, IOOptions{})
	must(t, stdio.Resize(132, 43))
	out := readAll(t, s.Stdout)
	must(t, c.Start(c.ctx, "start"))
	reap(t, pid)
	stdio.Exited()
	if got := within(t, "end of output", out); got != "43 132\r\n" {
		t.Errorf("terminal size %q", got)
	}
}
