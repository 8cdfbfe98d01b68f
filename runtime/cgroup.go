package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Cgroup is where a container's processes are accounted and limited: a directory
// in each hierarchy of version 1, or a single one of version 2. It outlives the
// processes: runc delete removes it.
type Cgroup struct {
	text string            // what was parsed
	dirs map[string]string // directory by controller; unified is the hierarchy of version 2
}

// unified is the name of the version 2 hierarchy in /proc/PID/cgroup: none.
const unified = ""

// CgroupOf finds the cgroup of exactly the process that was started at start: one
// that is about to end is in the root of the version 1 hierarchies already.
// errdefs.ErrNotFound when it has ended.
func CgroupOf(pid int, start uint64) (Cgroup, error) {
	process, err := OpenProcess(pid, start)
	if err != nil {
		return Cgroup{}, err
	}
	defer process.Close()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if now, gone := StartTime(pid); gone != nil || now != start {
		return Cgroup{}, fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	}
	if err != nil {
		return Cgroup{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	g, err := ParseCgroup(string(text))
	if err != nil {
		return Cgroup{}, fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	return g, nil
}

// ParseCgroup reads lines of /proc/PID/cgroup (cgroups(7)): ID:CONTROLLERS:PATH.
// The root of a hierarchy is nobody's cgroup, because every process of the
// machine is in or below it, so such lines say nothing; if there are no others
// that is an error.
func ParseCgroup(text string) (Cgroup, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return Cgroup{}, err
	}
	return parseCgroup(text, mounts)
}

func parseCgroup(text string, mounts map[string]cgroupMount) (Cgroup, error) {
	g := Cgroup{dirs: map[string]string{}}
	var kept []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || !someones(parts[2]) {
			continue
		}
		used := false
		for _, controller := range strings.Split(parts[1], ",") {
			if m, ok := mounts[controller]; ok {
				g.dirs[controller], used = m.directory(parts[2]), true
			}
		}
		if used {
			kept = append(kept, line)
		}
	}
	g.text = strings.Join(kept, "\n")
	if len(g.dirs) == 0 {
		return Cgroup{}, fmt.Errorf("no cgroup below the root of a mounted hierarchy in %q", text)
	}
	return g, nil
}

// someones refuses paths that say nothing: the root, a cgroup that is removed, and one
// that cannot be seen from our cgroup namespace ("/..").
func someones(path string) bool {
	return filepath.Clean("/"+path) != "/" && path != "/.." && !strings.HasPrefix(path, "/../") && !strings.HasSuffix(path, " (deleted)")
}

// String is what ParseCgroup reads, for a journal.
func (g Cgroup) String() string { return g.text }

// IsZero reports whether no cgroup is known.
func (g Cgroup) IsZero() bool { return len(g.dirs) == 0 }

// version2 reports whether all controllers are those of the unified hierarchy. Where
// some are still version 1 (hybrid), those are where the container is accounted.
func (g Cgroup) version2() bool {
	for controller := range g.dirs {
		if controller != unified && !strings.HasPrefix(controller, "name=") {
			return false
		}
	}
	return true
}

// dir is the directory of the first controller there is, or of the unified hierarchy.
func (g Cgroup) dir(controllers ...string) string {
	for _, controller := range controllers {
		if dir := g.dirs[controller]; dir != "" {
			return dir
		}
	}
	return g.dirs[unified]
}

// exists reports whether any of the directories is still there.
func (g Cgroup) exists() bool {
	for _, dir := range g.dirs {
		if _, err := os.Stat(dir); err == nil {
			return true
		}
	}
	return false
}

// Processes lists the processes in the cgroup and below it: in the pids or the
// memory controller's hierarchy, else in the unified one. Those that have ended are
// not among them, nor is it an error that the cgroup is gone.
func (g Cgroup) Processes() ([]int, error) {
	dir := g.dir("pids", "memory")
	if dir == "" {
		return nil, errors.New("the cgroup has neither pids nor memory controller, and is not in the unified hierarchy")
	}
	var pids []int
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil // a cgroup below may go at any time
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for _, field := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				pids = append(pids, n)
			}
		}
		return nil
	})
	return pids, err
}

// Processes lists the processes in the cgroup of a process and below it.
// errdefs.ErrNotFound when the process has ended.
func Processes(pid int, start uint64) ([]int, error) {
	g, err := CgroupOf(pid, start)
	if err != nil {
		return nil, err
	}
	return g.Processes()
}
