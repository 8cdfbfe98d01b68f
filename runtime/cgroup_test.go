package runtime

import (
	"os"
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

func TestRootCgroupIsRefused(t *testing.T) {
	for _, path := range []string{"/", "//", "/."} {
		if dir, err := below(1, "/sys/fs/cgroup/pids", path); err == nil {
			t.Errorf("%q: %s", path, dir)
		}
	}
	if dir, err := below(1, "/sys/fs/cgroup/pids", "/a"); err != nil || dir != "/sys/fs/cgroup/pids/a" {
		t.Errorf("%s, %v", dir, err)
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	must(t, err)
	if !strings.Contains(string(text), ":pids:/\n") {
		return
	}
	start, err := StartTime(os.Getpid())
	must(t, err)
	if pids, err := Processes(os.Getpid(), start); err == nil {
		t.Errorf("%d processes of the whole machine", len(pids))
	}
}
