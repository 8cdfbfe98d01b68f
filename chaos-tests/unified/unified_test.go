// Package unified checks what a container's cgroup has to look like where the host has unified
// cgroups (version 2), by the files of the kernel's Documentation/admin-guide/cgroup-v2.rst. Such a
// host is what `make vm-test` makes.
package unified

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

const (
	limit     = 30 * time.Second
	testLimit = 3 * time.Minute
	top       = "/sys/fs/cgroup"
)

// start runs a container in a harness of its own, with a limit of 20 processes.
func start(t *testing.T) (context.Context, *harness.Harness, *harness.Container, group) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(top, &fs); err != nil || fs.Type != unix.CGROUP2_SUPER_MAGIC {
		t.Skip("this machine's cgroups are of version 1")
	}
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "c", harness.Config{Args: harness.Sleep(), Spec: []oci.SpecOpts{oci.WithPidsLimit(20)}})
	harness.Check(t, err)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.Task.Pid()))
	harness.Check(t, err)
	name, found := strings.CutPrefix(strings.TrimSpace(string(text)), "0::")
	if !found {
		t.Fatalf("its cgroup is %q", text)
	}
	return ctx, h, c, group{t, filepath.Join(top, name)}
}

// group is a cgroup's directory.
type group struct {
	t   *testing.T
	dir string
}

// is checks a file's only line, or one of them.
func (g group) is(file, want string) {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		g.t.Error(err)
	} else if !strings.Contains("\n"+string(text), "\n"+want+"\n") {
		g.t.Errorf("%s of %s is %q, want %q", file, g.dir, text, want)
	}
}

func (g group) gone() {
	g.t.Helper()
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		g.t.Errorf("cgroup %s is still there (%v)", g.dir, err)
	}
}

// sleepers is shell code that starts n processes and says how many the kernel has refused.
const sleepers = `refused=0; for i in $(seq %d); do (exec sleep 1000 >/dev/null 2>&1 &) || refused=$((refused+1)); done; echo $refused`

// TestProcessLimit: no more processes than allowed, and nobody is left of those that there were.
func TestProcessLimit(t *testing.T) {
	ctx, h, c, g := start(t)
	g.is("pids.max", "20")
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "many", Args: harness.Shell(fmt.Sprintf(sleepers, 40))})
	harness.Check(t, err)
	exit, err := e.AwaitExit(ctx) // a shell that cannot fork may give up
	harness.Check(t, err)
	t.Logf("it ended with %d, and said %q and %q", exit.Code, e.Stdout.String(), e.Stderr.String())
	harness.Check(t, wait.Until(ctx, limit, "the limit to be hit", func() error {
		text, err := os.ReadFile(filepath.Join(g.dir, "pids.events"))
		if err == nil && strings.Contains(string(text), "max 0\n") {
			err = fmt.Errorf("pids.events is %q", text)
		}
		return err
	}))
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGKILL, client.WithKillAll))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
		t.Errorf("it ended with %d, %v", exit.Code, err)
	}
	_, err = e.Delete(ctx)
	harness.Check(t, err)
	harness.Check(t, c.DeleteTask(ctx))
	g.gone()
	_, err = h.Events.Expect(limit, "c", "create", "start", "exec-added many", "exec-started many", "exit many", "exit", "delete")
	harness.Check(t, err)
}

// TestUpdate: what a client changes is in the cgroup, and holds; controllers that nothing was limited by before are
// there for it.
func TestUpdate(t *testing.T) {
	ctx, h, c, g := start(t)
	for _, name := range []string{"cpu", "io", "memory", "pids"} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(g.dir), "cgroup.subtree_control"))
		if err != nil || !strings.Contains(" "+strings.TrimSpace(string(text))+" ", " "+name+" ") {
			t.Errorf("controller %s is not in %q, %v", name, text, err)
		}
	}
	update := func(r specs.LinuxResources) {
		t.Helper()
		harness.Check(t, c.Task.Update(ctx, client.WithResources(&r)))
	}
	update(specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(25000)), Period: new(uint64(100000)), Shares: new(uint64(512))}})
	g.is("cpu.max", "25000 100000")
	if text, err := os.ReadFile(filepath.Join(g.dir, "cpu.weight")); err != nil || string(text) == "100\n" { // the default, for shares of 1024
		t.Errorf("cpu.weight is %q, %v", text, err) // which it ought to be depends on runc's version
	}
	update(specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(-1)), Period: new(uint64(100000))}})
	g.is("cpu.max", "max 100000")
	if c.Runtime != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
	}
	update(specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(24 << 20))}, Pids: &specs.LinuxPids{Limit: new(int64(30))}})
	g.is("memory.max", fmt.Sprint(24<<20))
	g.is("pids.max", "30")
	r, err := c.Sh(ctx, "eater", `x=0123456789abcdef; while :; do x=$x$x$x$x; done`)
	if err != nil || r.Code != 137 {
		t.Errorf("what wants more memory than there is now ended with %d, %v", r.Code, err)
	}
	g.is("memory.events", "oom_kill 1")
	_, err = h.Events.Expect(limit, "c", "create", "start", "exec-added eater", "exec-started eater", "oom", "exit eater")
	harness.Check(t, err)
}

// TestFrozen: a pause is the kernel's, whoever asks, and holds over the worker's death; a killed container dies of it
// although it is paused.
func TestFrozen(t *testing.T) {
	ctx, _, c, g := start(t)
	harness.Check(t, c.Task.Pause(ctx))
	g.is("cgroup.freeze", "1")
	g.is("cgroup.events", "frozen 1")
	if c.Runtime != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
	}
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Paused {
		t.Errorf("it is %q, %v", status.Status, err)
	}
	g.is("cgroup.freeze", "1")
	harness.Check(t, c.Task.Resume(ctx))
	g.is("cgroup.events", "frozen 0")
	harness.Check(t, c.Task.Pause(ctx))
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGKILL))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
		t.Errorf("the killed container ended with %d, %v", exit.Code, err)
	}
	harness.Check(t, c.DeleteTask(ctx))
	g.gone()
}
