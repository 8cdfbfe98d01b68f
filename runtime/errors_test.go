package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Texts as the runtimes logged them (runc 1.1.5 and 1.5.3 and crun 1.8.1 here), those of
// runc 1.3.4 and 1.4.0 after its source; a row says which runtimes use it.
func TestClassify(t *testing.T) {
	const (
		runcAll = "runc 1.1.5, 1.3.4, 1.4.0, 1.5.3"
		crun    = "crun 1.8.1"
	)
	for _, c := range []struct {
		runtime, op, text string
		want              error
	}{
		{runcAll, "state", "container does not exist", errdefs.ErrNotFound},
		{runcAll, "kill", "container does not exist", errdefs.ErrNotFound},
		{runcAll, "delete", "container does not exist", errdefs.ErrNotFound},
		{runcAll, "exec", "exec failed: container does not exist", errdefs.ErrNotFound},
		{runcAll, "kill", "container not running", errdefs.ErrNotFound},
		{"runc 1.1.5", "kill", "unable to signal init: os: process already finished", errdefs.ErrNotFound},
		{"runc 1.1.5", "kill", "unable to signal init: no such process", errdefs.ErrNotFound},
		{runcAll, "create", "runc create failed: container with given ID already exists", errdefs.ErrAlreadyExists},
		{runcAll, "start", "cannot start an already running container", errdefs.ErrFailedPrecondition},
		{runcAll, "start", "cannot start a container that has stopped", errdefs.ErrFailedPrecondition},
		{runcAll, "start", "cannot start a container in the paused state", errdefs.ErrFailedPrecondition},
		{runcAll, "exec", "exec failed: cannot exec in a stopped container", errdefs.ErrFailedPrecondition},
		{runcAll, "exec", "exec failed: cannot exec in a paused container (use --ignore-paused to override)", errdefs.ErrFailedPrecondition},
		{runcAll, "pause", "container not running", errdefs.ErrFailedPrecondition},
		{runcAll, "resume", "container not paused", errdefs.ErrFailedPrecondition},
		{runcAll, "delete", "cannot delete container x that is not stopped: running", errdefs.ErrFailedPrecondition},
		{runcAll, "exec", `exec failed: unable to start container process: exec: "nosuchbin": executable file not found in $PATH`, nil},
		{runcAll, "create", `runc create failed: unable to start container process: exec: "sleep": executable file not found in $PATH`, nil},
		{runcAll, "update", "unable to set memory limit to 1 (current usage: 303104, peak usage: 2658304)", nil},
		{"runc 1.5.3", "create", `runc create failed: unable to start container process: error during container init: exec: "/no/sh": stat /no/sh: no such file or directory`, nil},
		{runcAll, "exec", `exec failed: unable to start container process: exec: "/no/such": stat /no/such: no such file or directory`, nil},
		{runcAll, "update", "container not running", errdefs.ErrFailedPrecondition},
		{runcAll, "start", "container does not exist", errdefs.ErrNotFound},
		{"runc 1.3.4, 1.4.0", "create", "runc create failed: container's cgroup is not empty: 1 process(es) found", nil},
		{"runc 1.3.4, 1.4.0", "create", "runc create failed: unable to start container process: container init was OOM-killed (memory limit too low?)", nil},

		{crun, "state", "error opening file `/run/crun/x/status`: No such file or directory", errdefs.ErrNotFound},
		{crun, "exec", "error opening file `/run/crun/x/status`: No such file or directory", errdefs.ErrNotFound},
		{crun, "delete", "cannot open directory '/run/crun/x': No such file or directory", errdefs.ErrNotFound},
		{crun, "kill", "kill container: No such process", errdefs.ErrNotFound},
		{crun, "create", "container `x` already exists", errdefs.ErrAlreadyExists},
		{crun, "start", "cannot open `/run/crun/x/exec.fifo`: No such file or directory", errdefs.ErrFailedPrecondition},
		{crun, "start", "container `x` is not running", errdefs.ErrFailedPrecondition},
		{crun, "delete", "the container `x` is not in `created` or `stopped` state", errdefs.ErrFailedPrecondition},
		{crun, "exec", "the container `x` is paused", errdefs.ErrFailedPrecondition},
		{crun, "exec", "the container `x` is not running", errdefs.ErrFailedPrecondition},
		{crun, "pause", "the container `x` is not running: No such process", errdefs.ErrFailedPrecondition},
		{crun, "exec", "executable file `nosuchbin` not found in $PATH: No such file or directory", nil},
	} {
		if got := classify(c.op, c.text); !errors.Is(got, c.want) {
			t.Errorf("%s: %s: %q: got %v, want %v", c.runtime, c.op, c.text, got, c.want)
		}
	}
}

func TestIntentErrorIsTheLastErrorOfTheLog(t *testing.T) {
	r := New(Config{Bundle: t.TempDir(), ID: "x"})
	must(t, os.Mkdir(filepath.Join(r.Bundle, intentDir), 0o700))
	long := strings.Repeat("x", 70_000) + " the cause"
	for name, c := range map[string]struct {
		log, want string
		found     bool
	}{
		"empty":      {"", "", false},
		"warning":    {`{"level":"warning","msg":"w"}` + "\n", "", false},
		"last":       {`{"level":"error","msg":"a"}` + "\n" + `{"level":"error","msg":"b"}` + "\n" + `{"level":"warning","msg":"c"}` + "\n", "b", true},
		"cut short":  {`{"level":"error","msg":"a"}` + "\n" + `{"level":"err`, "a", true},
		"no pid":     {`{"level":"error","msg":"open /b/perdure/.i.pid: no space left on device"}` + "\n", "", false}, // it has run
		"plain text": {"panic: oh\n" + `{"level":"error","msg":"a"}` + "\nmore\n", "a", true},
	} {
		must(t, os.WriteFile(r.file("i", "log"), []byte(c.log), 0o600))
		if got, found := r.IntentError("i"); got != c.want || found != c.found {
			t.Errorf("%s: got %q, %v", name, got, found)
		}
	}
	must(t, os.WriteFile(r.file("i", "log"), []byte(`{"level":"error","msg":"`+long+"\"}\n"), 0o600))
	got, _ := r.IntentError("i")
	if !strings.HasSuffix(got, "the cause") || len(got) > 5000 {
		t.Errorf("an error of %d bytes became one of %d, ending in %q", len(long), len(got), got[max(0, len(got)-20):])
	}
	if _, found := r.IntentError("never"); found {
		t.Error("an intent without a log has an error")
	}
}

func TestCallErrors(t *testing.T) {
	r := New(Config{Bundle: t.TempDir(), ID: "x", Namespace: "test", Root: t.TempDir(), Binary: "no-such-runtime"})
	if err := r.Start(context.Background(), "start-1"); err == nil || !strings.Contains(err.Error(), "BinaryName") {
		t.Errorf("a missing runtime binary: %v", err)
	}
	slow := filepath.Join(t.TempDir(), "slow")
	must(t, os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700))
	r = New(Config{Bundle: t.TempDir(), ID: "x", Binary: slow, Timeout: 50 * time.Millisecond})
	if err := r.Start(context.Background(), "start-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a runtime that does not end: %v", err)
	}
	// A child that keeps the output open must not keep the call.
	leaky := filepath.Join(t.TempDir(), "leaky")
	must(t, os.WriteFile(leaky, []byte("#!/bin/sh\nsleep 1000 &\necho $! >pid\n"), 0o700))
	r = New(Config{Bundle: t.TempDir(), ID: "x", Binary: leaky})
	must(t, r.Start(context.Background(), "start-1"))
	killNamed(t, filepath.Join(r.Bundle, "pid"))
}

// A runtime that cannot write its log ends without a word: what it cannot say, its caller does.
func TestAFullDiskIsSaid(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=65536"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, 0)) })
	r := New(Config{Bundle: dir, ID: "x", Binary: "runc"})
	wordless := errors.New("runc did not terminate successfully: exit status 1")
	if said := r.explain(t.Context(), "create-1", "create", wordless).Error(); strings.Contains(said, "is full") {
		t.Error(said)
	}
	_ = os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 65536), 0o600)
	if said := r.explain(t.Context(), "create-1", "create", wordless).Error(); !strings.HasSuffix(said, dir+" is full") {
		t.Error(said)
	}
}
