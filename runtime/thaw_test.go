package runtime

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	must(t, err)
	return string(text)
}

// A frozen process does not die of SIGKILL with version 1, until it is thawed.
func TestThaw(t *testing.T) {
	c := newContainer(t)
	stdio, pid := c.run(Stdio{}, IOOptions{Direct: true})
	start, err := StartTime(pid)
	must(t, err)
	g, err := CgroupOf(pid, start)
	must(t, err)
	must(t, g.Thaw()) // not frozen
	file, _, _ := g.freezer()
	freeze := "FROZEN"
	if g.version2() {
		freeze = "1"
	}
	must(t, os.WriteFile(file, []byte(freeze), 0))
	await(t, "the cgroup to be frozen", func() bool { return read(t, file) == freeze+"\n" })
	must(t, SignalProcess(pid, start, unix.SIGKILL))
	must(t, g.Thaw())
	if status := reap(t, pid); status != 137 {
		t.Errorf("it ended with %d", status)
	}
	stdio.Exited()
}

func TestThawOfFiles(t *testing.T) {
	for _, c := range []struct{ controller, name, state, want string }{
		{"freezer", "freezer.state", "FROZEN\n", "THAWED"},
		{"freezer", "freezer.state", "FREEZING\n", "THAWED"},
		{"freezer", "freezer.state", "THAWED\n", "THAWED\n"},
		{unified, "cgroup.freeze", "1\n", "0"},
		{unified, "cgroup.freeze", "0\n", "0\n"},
	} {
		dir := fixture(t, map[string]string{c.name: c.state})
		must(t, Cgroup{dirs: map[string]string{c.controller: dir}}.Thaw())
		if got := read(t, dir, c.name); got != c.want {
			t.Errorf("%s with %q has %q after it, want %q", c.name, c.state, got, c.want)
		}
	}
	gone := filepath.Join(t.TempDir(), "gone")
	for _, dirs := range []map[string]string{{}, {"freezer": gone}, {unified: gone}} {
		if err := (Cgroup{dirs: dirs}).Thaw(); err != nil {
			t.Errorf("%v: %v", dirs, err)
		}
	}
}

// Plain files keep the last line that was written to them.
func TestEnableControllers(t *testing.T) {
	top := t.TempDir()
	for dir, on := range map[string]string{"": "", "a": "cpu", "a/b": "", "a/b/c": ""} {
		must(t, os.MkdirAll(filepath.Join(top, dir), 0o700))
		must(t, os.WriteFile(filepath.Join(top, dir, "cgroup.controllers"), []byte("cpu memory\n"), 0o600))
		must(t, os.WriteFile(filepath.Join(top, dir, "cgroup.subtree_control"), []byte(on), 0o600))
	}
	must(t, enableControllers(top, filepath.Join(top, "a/b/c")))
	for dir, want := range map[string]string{"": "", "a": "+memory", "a/b": "+memory", "a/b/c": ""} {
		if got := read(t, top, dir, "cgroup.subtree_control"); got != want {
			t.Errorf("%q has %q, want %q", dir, got, want)
		}
	}
	must(t, enableControllers(top, filepath.Join(top, "a"))) // nothing is above it but the root
	if err := enableControllers(top, filepath.Join(top, "none/x")); err == nil {
		t.Error("a level that is not there is no error")
	}
}

func TestEnableControllersOfAContainer(t *testing.T) {
	c := newContainer(t)
	stdio, pid := c.run(Stdio{}, IOOptions{Direct: true})
	start, err := StartTime(pid)
	must(t, err)
	g, err := CgroupOf(pid, start)
	must(t, err)
	must(t, g.EnableControllers())
	must(t, SignalProcess(pid, start, unix.SIGKILL))
	reap(t, pid)
	stdio.Exited()
	if _, err := CgroupOf(pid, start); !errdefs.IsNotFound(err) {
		t.Errorf("the process has ended: %v", err)
	}
}
