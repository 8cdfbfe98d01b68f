package runtime

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// A runtime that is killed in the middle of a create has made the container's cgroups and
// kept nothing: deleting the container removes them, once its child has gone.
func TestCgroupsOfAKilledRuntimeAreRemoved(t *testing.T) {
	c := newContainer(t)
	mounts, err := cgroupMounts()
	must(t, err)
	var dirs []string
	for _, m := range mounts {
		dir := m.directory("/" + c.ID)
		must(t, os.MkdirAll(dir, 0o755))
		dirs = append(dirs, dir)
	}
	child := exec.Command("/bin/sh", "-c", "read end")
	in, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	must(t, os.WriteFile(filepath.Join(dirs[0], "cgroup.procs"), []byte(strconv.Itoa(child.Process.Pid)), 0))
	ended := make(chan error, 1)
	go func() { in.Close(); ended <- child.Wait() }()
	must(t, c.Delete(c.ctx, "undo-create", true))
	<-ended
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left behind: %v", dir, err)
		}
	}
}

// A cgroup that does not carry the container's name may be anybody's.
func TestCgroupsOfOtherNamesStay(t *testing.T) {
	c := newContainer(t)
	path := "/" + c.ID + "-of-others"
	mounts, err := cgroupMounts()
	must(t, err)
	for _, m := range mounts {
		must(t, os.MkdirAll(m.directory(path), 0o755))
		t.Cleanup(func() {
			if err := os.Remove(m.directory(path)); err != nil && !os.IsNotExist(err) { // controllers may share a hierarchy
				t.Error(err)
			}
		})
	}
	must(t, os.WriteFile(filepath.Join(c.Bundle, "config.json"), []byte(`{"linux":{"cgroupsPath":"`+path+`"}}`), 0o600))
	must(t, c.Delete(c.ctx, "undo-create", true))
	for _, m := range mounts {
		if _, err := os.Stat(m.directory(path)); err != nil {
			t.Errorf("somebody's cgroup is gone: %v", err)
		}
	}
}
