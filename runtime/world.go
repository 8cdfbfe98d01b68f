package runtime

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Unstarted reports whether the init still waits for Start: runc and crun keep
// an exec fifo in their state directory until the init goes on to user code.
func (r *Runc) Unstarted() bool {
	_, err := os.Lstat(filepath.Join(r.Root, r.ID, "exec.fifo"))
	return err == nil
}

// Ran reports whether the runtime was executed for an intent: it creates its
// log file before it does anything else (runc 1.1.5, crun 1.8.1).
func (r *Runc) Ran(intent string) bool {
	_, err := os.Lstat(r.file(intent, "log"))
	return err == nil
}

// CleanAll removes the files of every intent.
func (r *Runc) CleanAll() { _ = os.RemoveAll(filepath.Join(r.Bundle, intentDir)) }

// CheckProcess returns the OCI process of an exec, or what is wrong with it.
func CheckProcess(document []byte, terminal bool) ([]byte, error) {
	var process specs.Process
	switch err := json.Unmarshal(document, &process); {
	case len(document) == 0:
		return nil, errors.New("the request has no process")
	case err != nil:
		return nil, fmt.Errorf("the process is not an OCI process: %w", err)
	case len(process.Args) == 0:
		return nil, errors.New("the process has no arguments")
	case process.Terminal && !terminal:
		return nil, errors.New("the process wants a terminal that the request does not give it")
	}
	return document, nil
}

// Processes lists the processes in the cgroup of a process and below it: in
// the unified hierarchy where that is the only one, else in that of the pids
// or memory controller.
func Processes(pid int) ([]int, error) {
	dir, err := cgroupDir(pid)
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
			return filepath.Join(cgroupRoot, parts[1], parts[2]), nil
		case "":
			unified = filepath.Join(cgroupRoot, parts[2])
		}
	}
	if unified == "" {
		return "", fmt.Errorf("cgroup of process %d: neither pids, memory nor unified in /proc/%d/cgroup", pid, pid)
	}
	return unified, nil
}
