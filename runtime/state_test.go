package runtime

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A wrapper that demands a log and passes no output on, as containerd's runc-fp,
// does not hide what state its container is in.
func TestStateOfARuntimeThatDoesNotAnswer(t *testing.T) {
	runc, err := exec.LookPath("runc")
	must(t, err)
	wrapper := filepath.Join(t.TempDir(), "wrapper")
	script := "#!/bin/sh\ncase \" $* \" in *' --log '*) ;; *) exit 2;; esac\nexec " + runc + " \"$@\" >/dev/null 2>&1\n"
	must(t, os.WriteFile(wrapper, []byte(script), 0o755))
	c := newContainer(t, args("/bin/sleep", "1000"))
	c.Binary = wrapper
	if _, err := c.State(c.ctx); err == nil {
		t.Error("an unknown container has a state")
	}
	stdio, pid := c.create(Stdio{}, IOOptions{Direct: true})
	want := func(status string, pid int) {
		t.Helper()
		if got, err := c.State(c.ctx); err != nil || got != (Status{status, pid}) {
			t.Errorf("state %+v, %v, want %s", got, err, status)
		}
	}
	want("created", pid)
	must(t, c.Start(c.ctx, "start-1"))
	want("running", pid)
	must(t, c.Pause(c.ctx, "pause-1"))
	want("paused", pid)
	must(t, c.Resume(c.ctx, "resume-1"))
	want("running", pid)
	must(t, c.KillAll(c.ctx, "kill-1", int(unix.SIGKILL)))
	reap(t, pid)
	want("stopped", 0)
	must(t, stdio.Close())
	c.Binary = runc // whose word the clean-up wants
}

func TestAnErrorOfStateIsTheRuntimesWord(t *testing.T) {
	c := newContainer(t, args("/bin/true"))
	_, err := c.State(c.ctx)
	if !errdefs.IsNotFound(err) || strings.Contains(err.Error(), "{") {
		t.Errorf("state of an unknown container: %v", err)
	}
}

// A start that is killed after it has let the init go, and before it has removed the exec fifo, has happened.
func TestInitThatHasPassedTheFIFORuns(t *testing.T) {
	c := newContainer(t, args("/bin/sleep", "1000"))
	stdio, pid := c.create(Stdio{}, IOOptions{Direct: true})
	if got, err := c.State(c.ctx); err != nil || got != (Status{"created", pid}) || !c.Unstarted() {
		t.Fatalf("state %+v, %v, unstarted %v, want created", got, err, c.Unstarted())
	}
	fifo, err := os.Open(filepath.Join(c.Root, c.ID, "exec.fifo")) // as start does, until it is killed
	must(t, err)
	_, err = io.ReadAll(fifo)
	must(t, errors.Join(err, fifo.Close()))
	start, err := StartTime(pid)
	must(t, err)
	await(t, "the user's program", func() bool { return executed(pid, start) })
	if got, err := c.State(c.ctx); err != nil || got != (Status{"running", pid}) || c.Unstarted() {
		t.Errorf("state %+v, %v, unstarted %v, want running", got, err, c.Unstarted())
	}
	must(t, c.KillAll(c.ctx, "kill-1", int(unix.SIGKILL)))
	reap(t, pid)
	must(t, stdio.Close())
}
