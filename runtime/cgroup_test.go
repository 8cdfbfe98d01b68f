package runtime

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestProcessesOfACgroup(t *testing.T) {
	c := newContainer(t)
	stdio, pid := c.run(Stdio{}, IOOptions{Direct: true})
	_, exec := c.exec("a", Stdio{}, "/bin/sleep", "1000")
	start, err := StartTime(pid)
	must(t, err)
	pids, err := Processes(pid, start)
	must(t, err)
	slices.Sort(pids)
	want := []int{pid, exec}
	slices.Sort(want)
	if !slices.Equal(pids, want) {
		t.Errorf("processes %v, want %v", pids, want)
	}
	if pids, err := Processes(pid, start+1); !errdefs.IsNotFound(err) {
		t.Errorf("the pid is another's by now: %v, %v", pids, err)
	}
	// An init that waits for its processes to be reaped is in the root of the version 1
	// hierarchies, and no zombie yet.
	must(t, unix.Kill(pid, unix.SIGKILL))
	must(t, awaitEnd(exec))
	if pids, err := Processes(pid, start); err == nil && len(pids) > 2 {
		t.Errorf("an ending init has %d processes", len(pids))
	}
	reap(t, exec)
	must(t, awaitEnd(pid))
	if pids, err := Processes(pid, start); !errdefs.IsNotFound(err) {
		t.Errorf("the process has ended: %v, %v", pids, err)
	}
	reap(t, pid)
	stdio.Exited()
}

// A process in the root of a hierarchy is in nobody's cgroup: everything of the machine
// is in or below it.
func TestRootCgroupIsNobodys(t *testing.T) {
	mounts := map[string]cgroupMount{"memory": {point: "/sys/fs/cgroup/memory"}, "pids": {point: "/sys/fs/cgroup/pids"}, unified: {point: "/sys/fs/cgroup/unified"}}
	for _, text := range []string{"", "0::/\n", "1:memory://\n", "1:memory:/.\n2:pids:/\n0::/\n", "1:memory:/..\n", "1:memory:/../a\n", "0::/a (deleted)\n", "9:devices:/a\n"} {
		if g, err := parseCgroup(text, mounts); err == nil {
			t.Errorf("%q: %v", text, g.dirs)
		}
	}
	g, err := parseCgroup("2:pids:/a/b\n1:memory:/\n0::/\n", mounts)
	must(t, err)
	if dir := g.dir("memory", "pids"); dir != "/sys/fs/cgroup/pids/a/b" || len(g.dirs) != 1 {
		t.Errorf("%v", g.dirs)
	}
	again, err := parseCgroup(g.String(), mounts)
	if err != nil || !maps.Equal(again.dirs, g.dirs) || again.String() != "2:pids:/a/b" {
		t.Errorf("what was journaled reads as %v, %v", again.dirs, err)
	}
}

func TestCgroupMounts(t *testing.T) {
	mounts, err := readCgroupMounts(strings.NewReader(`22 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 22 0:27 / /sys/fs/cgroup rw,relatime shared:4 - tmpfs tmpfs rw,mode=755
31 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
34 30 0:31 /docker/abc /sys/fs/cgroup/memory ro,relatime - cgroup cgroup rw,memory
39 30 0:36 / /sys/fs/cgroup/systemd rw,relatime - cgroup systemd rw,xattr,name=systemd
40 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
50 22 0:37 / /elsewhere rw,relatime - cgroup2 cgroup2 rw
`))
	must(t, err)
	g, err := parseCgroup("5:cpu,cpuacct:/x\n4:memory:/docker/abc/x\n1:name=systemd:/x\n0::/x\n", mounts)
	must(t, err)
	want := map[string]string{
		"cpu": "/sys/fs/cgroup/cpu,cpuacct/x", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct/x", "memory": "/sys/fs/cgroup/memory/x",
		"name=systemd": "/sys/fs/cgroup/systemd/x", unified: "/sys/fs/cgroup/unified/x",
	}
	if !maps.Equal(g.dirs, want) || g.version2() {
		t.Errorf("%v, version 2: %v", g.dirs, g.version2())
	}
	if g, err := parseCgroup("1:name=systemd:/x\n0::/x\n", mounts); err != nil || !g.version2() {
		t.Errorf("all controllers are version 2's: %v, %v", g.version2(), err)
	}
	if dir := mounts["memory"].directory("/docker/abcd"); dir != "/sys/fs/cgroup/memory/docker/abcd" {
		t.Errorf("a sibling of the shown root is %s", dir)
	}
}
