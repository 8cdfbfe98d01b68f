package runtime

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Processes lists the processes in the cgroup of a process and below it: in
// the unified hierarchy where that is the only one, else in that of the pids
// or memory controller. errdefs.ErrNotFound when the process has ended.
func Processes(pid int, start uint64) ([]int, error) {
	dir, err := cgroupOf(pid, start)
	if err != nil {
		return nil, err
	}
	var pids []int
	err = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
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

// cgroupRoot is where cgroups are mounted on every distribution containerd
// supports.
const cgroupRoot = "/sys/fs/cgroup"

// cgroupOf is cgroupDir of exactly the process that was started at start: one that is
// about to end is in the root of the version 1 hierarchies already.
func cgroupOf(pid int, start uint64) (string, error) {
	process, err := OpenProcess(pid, start)
	if err != nil {
		return "", err
	}
	defer process.Close()
	dir, err := cgroupDir(pid)
	if now, gone := StartTime(pid); gone != nil || now != start {
		return "", fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	}
	return dir, err
}

// cgroupDir finds the directory of a process's cgroup (cgroups(7), /proc/PID/cgroup).
func cgroupDir(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", fmt.Errorf("cgroup of process %d: %w", pid, err)
	}
	unified := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch parts[1] {
		case "pids", "memory":
			return below(pid, filepath.Join(cgroupRoot, parts[1]), parts[2])
		case "":
			unified = parts[2]
		}
	}
	if unified == "" {
		return "", fmt.Errorf("cgroup of process %d: neither pids, memory nor unified in /proc/%d/cgroup", pid, pid)
	}
	return below(pid, cgroupRoot, unified)
}

// below refuses the root of a hierarchy: every process of the machine is in or below it.
func below(pid int, hierarchy, cgroup string) (string, error) {
	if filepath.Clean(cgroup) == "/" {
		return "", fmt.Errorf("cgroup of process %d: it is in the root of %s", pid, hierarchy)
	}
	return filepath.Join(hierarchy, cgroup), nil
}
