package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// orphaned kills a worker inside runc create once a hook has said that it runs.
func (c *container) orphaned(entered string) (intent string) {
	c.t.Helper()
	intent = c.intent("create")
	config := c.Config
	config.Root = filepath.Dir(config.Root) // New appends the namespace
	w := startWorker(c.t, c.store, "create", job{Config: config, Options: IOOptions{Direct: true, Bundle: c.Bundle, Intent: intent}})
	_, err := os.ReadFile(entered)
	must(c.t, err)
	w.kill()
	c.t.Cleanup(func() { must(c.t, c.store.Drop("init")) })
	return intent
}

func (c *container) awaitOrphans(ctx context.Context, intent string) <-chan error {
	result := make(chan error, 1)
	go func() { result <- c.WaitOrphans(ctx, intent) }()
	return result
}

func TestOrphanedCreateIsAwaited(t *testing.T) {
	for _, kind := range []string{"createRuntime", "prestart"} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			entered, leave := filepath.Join(dir, "entered"), filepath.Join(dir, "leave")
			must(t, unix.Mkfifo(entered, 0o600))
			must(t, unix.Mkfifo(leave, 0o600))
			c := newContainer(t, hook(kind, "/bin/sh", "-c", fmt.Sprintf("echo >>%s/runs; echo >%s; read x <%s", dir, entered, leave)))
			intent := c.orphaned(entered)
			waited := c.awaitOrphans(c.ctx, intent)
			if found, err := c.orphans(intent); err != nil || len(found) < 2 {
				t.Errorf("the runtime and its hook are orphans; found %v, %v", found, err)
			}
			if _, ok := c.PidFile(intent); ok {
				t.Error("a pid before the hook has ended")
			}
			must(t, c.WaitOrphans(c.ctx, "create-99"))
			must(t, os.WriteFile(leave, []byte("\n"), 0o600))
			must(t, within(t, "the end of the orphans", waited))
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
		})
	}
}

// A hook that hangs holds the next worker no longer than it would have held the last.
func TestOrphansAreCutShort(t *testing.T) {
	for name, limit := range map[string]time.Duration{"limit": 100 * time.Millisecond, "cancelled": patience} {
		t.Run(name, func(t *testing.T) {
			entered := filepath.Join(t.TempDir(), "entered")
			must(t, unix.Mkfifo(entered, 0o600))
			c := newContainer(t, hook("createRuntime", "/bin/sh", "-c", "sleep 1000 & echo >"+entered+"; wait"))
			intent := c.orphaned(entered)
			c.Timeout = limit
			ctx, cancel := context.WithCancel(c.ctx)
			waited := c.awaitOrphans(ctx, intent)
			if name == "cancelled" {
				cancel()
			}
			must(t, within(t, "the orphans' end", waited))
			cancel()
			c.Timeout = patience
			await(t, "nothing of the hook is left", func() bool { return len(c.processes()) == 0 })
			if _, ok := c.PidFile(intent); ok {
				t.Error("the killed runtime has left a pid")
			}
			must(t, c.Delete(c.ctx, c.intent("delete"), true))
		})
	}
}

// The same for a worker that lives.
func TestHooksEndWithARuntimeWhoseTimeIsUp(t *testing.T) {
	entered := filepath.Join(t.TempDir(), "entered")
	must(t, unix.Mkfifo(entered, 0o600))
	c := newContainer(t, hook("createRuntime", "/bin/sh", "-c", "sleep 1000 & echo >"+entered+"; wait"))
	stdio := c.openIO("init", Stdio{}, IOOptions{Intent: "create-1", Direct: true})
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	created := make(chan error, 1)
	go func() {
		_, err := c.Create(ctx, "create-1", stdio, nil)
		created <- err
	}()
	_, err := os.ReadFile(entered)
	must(t, err)
	cancel()
	if err := within(t, "the end of the create", created); !errors.Is(err, context.Canceled) {
		t.Errorf("create that was given up while a hook hung: %v", err)
	}
	await(t, "nothing of the hook is left", func() bool { return len(c.processes()) == 0 })
}

// What a hook starts to stay is not waited for, and not killed.
func TestDaemonOfAHookIsNoOrphan(t *testing.T) {
	for name, start := range map[string]string{"session": "setsid sleep 1000", "background": "sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			entered, leave := filepath.Join(dir, "entered"), filepath.Join(dir, "leave")
			must(t, unix.Mkfifo(entered, 0o600))
			must(t, unix.Mkfifo(leave, 0o600))
			c := newContainer(t, hook("createRuntime", "/bin/sh", "-c", fmt.Sprintf(
				"%s </dev/null >/dev/null 2>&1 & echo $! >%s/pid; echo >%s; read x <%s", start, dir, entered, leave)))
			intent := c.orphaned(entered)
			must(t, os.WriteFile(leave, []byte("\n"), 0o600))
			must(t, c.WaitOrphans(c.ctx, intent))
			init, ok := c.PidFile(intent)
			if !ok {
				t.Error("the orphaned create has left no pid")
			}
			text, err := os.ReadFile(filepath.Join(dir, "pid"))
			must(t, err)
			daemon, err := strconv.Atoi(strings.TrimSpace(string(text)))
			must(t, err)
			if !carries(daemon, []byte(c.marker(intent))) {
				t.Error("the daemon is gone, or has lost the marker it is told by")
			}
			must(t, unix.Kill(daemon, unix.SIGKILL))
			reap(t, daemon)
			must(t, c.Delete(c.ctx, c.intent("delete"), true))
			reap(t, init)
		})
	}
}

// A fork of the dead worker is what runs its program in its mount namespace.
func TestForkOfTheWorkerIsAnOrphan(t *testing.T) {
	c := newContainer(t)
	before, err := c.orphans("create-1")
	must(t, err)
	fork := process(t, "idle", nil, nil)
	found, err := c.orphans("create-1")
	must(t, err)
	if len(before) != 0 || len(found) != 1 || found[0].pid != fork.Process.Pid {
		t.Errorf("orphans %v and then %v, want only %d", before, found, fork.Process.Pid)
	}
	must(t, fork.Process.Kill())
	_ = fork.Wait()

	own, err := os.ReadFile("/proc/self/comm")
	must(t, err)
	box, err := os.ReadFile("/bin/busybox")
	must(t, err)
	namesake := filepath.Join(t.TempDir(), strings.TrimSpace(string(own)))
	must(t, os.WriteFile(namesake, box, 0o700))
	for _, argv := range [][]string{{namesake, "sleep", "1000"}, {"/usr/bin/unshare", "-m", "/proc/self/exe"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), roleEnv+"=idle")
		cmd.Args[0] = filepath.Base(argv[0])
		must(t, cmd.Start())
		must(t, c.WaitOrphans(c.ctx, "create-1"))
		must(t, cmd.Process.Kill())
		_ = cmd.Wait()
	}
}

// An upgrade renames the new program over that of the worker that has died.
func TestProgramIsKnownByItsPath(t *testing.T) {
	box, err := os.ReadFile("/bin/busybox")
	must(t, err)
	program := filepath.Join(t.TempDir(), "worker")
	must(t, os.WriteFile(program, box, 0o700))
	cmd := exec.Command(program, "sleep", "1000")
	cmd.Args[0] = "busybox"
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if !executes(cmd.Process.Pid, program) || executes(cmd.Process.Pid, program+"2") {
		t.Error("a program is not known by its path")
	}
	must(t, os.Remove(program))
	if !executes(cmd.Process.Pid, program) || !executes(cmd.Process.Pid, program+" (deleted)") {
		t.Error("a replaced program is not known by its path")
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
