package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// createRole is a worker that is killed inside runc create.
func createRole() int {
	keeper, j := workerJob()
	r := New(j.Config)
	stdio, err := OpenIO(keeper, "init", j.Stdio, j.Options)
	if err == nil {
		_, err = r.Create(context.Background(), j.Options.Intent, stdio, nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func TestOrphanedCreateIsAwaited(t *testing.T) {
	for _, kind := range []string{"createRuntime", "prestart"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			entered, leave := filepath.Join(dir, "entered"), filepath.Join(dir, "leave")
			must(t, unix.Mkfifo(entered, 0o600))
			must(t, unix.Mkfifo(leave, 0o600))
			c := newContainer(t, hook(kind, "/bin/sh", "-c", fmt.Sprintf("echo >>%s/runs; echo >%s; read x <%s", dir, entered, leave)))
			intent := c.intent("create")
			config := c.Config
			config.Root = filepath.Dir(config.Root) // New appends the namespace
			w := startWorker(t, c.store, "create", job{Config: config, Options: IOOptions{Direct: true, Bundle: c.Bundle, Intent: intent}})
			_, err := os.ReadFile(entered) // the hook is running
			must(t, err)
			w.kill()

			short, cancel := context.WithTimeout(c.ctx, 300*time.Millisecond)
			defer cancel()
			if err := c.WaitOrphans(short, intent); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("waiting while the hook runs: %v", err)
			}
			if _, ok := c.PidFile(intent); ok {
				t.Error("a pid before the hook has ended")
			}
			must(t, c.WaitOrphans(c.ctx, "create-99"))
			must(t, os.WriteFile(leave, []byte("\n"), 0o600))
			must(t, c.WaitOrphans(c.ctx, intent))
			pid, ok := c.PidFile(intent)
			if !ok {
				text, _ := c.IntentError(intent)
				t.Fatalf("the orphaned create left no pid: %s", text)
			}
			if got, err := c.State(c.ctx); err != nil || got != (Status{"created", pid}) {
				t.Errorf("state %+v, %v; want created %d", got, err, pid)
			}
			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			must(t, err)
			if strings.Count(string(runs), "\n") != 1 {
				t.Errorf("the hook ran %d times", strings.Count(string(runs), "\n"))
			}
			must(t, c.Delete(c.ctx, c.intent("delete"), true))
			reap(t, pid)
			must(t, c.store.Drop("init"))
		})
	}
}

// crun's init is a fork of crun, and has crun's environment until it is started: it is
// the container's, and must not be waited for.
func TestCreatedContainerIsNoOrphan(t *testing.T) {
	for _, binary := range []string{"runc", "crun"} {
		t.Run(binary, func(t *testing.T) {
			c := newContainerOf(t, binary)
			_, pid := c.create(Stdio{}, IOOptions{Direct: true})
			must(t, c.WaitOrphans(c.ctx, "create-1"))
			must(t, unix.Kill(pid, unix.SIGKILL))
			reap(t, pid)
		})
	}
}
