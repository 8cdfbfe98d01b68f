// Package cgroups checks what a shim makes of a container's cgroup: that it tells
// when the kernel has killed for want of memory, ends what an init leaves behind, and
// measures. The tests know nothing of the version of the host's cgroups.
package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

const (
	limit     = 30 * time.Second
	testLimit = 4 * time.Minute
)

// eat is shell code that wants more memory than there is, at once.
const eat = `x=0123456789abcdef; while :; do x=$x$x$x$x; done`

// eatInChild does so in a child of the shell's.
const eatInChild = `/bin/sh -c '` + eat + `'; `

// memory limits a container to so many MiB, swap included.
func memory(mib uint64) []oci.SpecOpts { return []oci.SpecOpts{oci.WithMemoryLimit(mib << 20)} }

// needsMemory skips a test where no cgroup can be limited.
func needsMemory(t *testing.T) {
	t.Helper()
	for _, file := range []string{"memory/memory.limit_in_bytes", "cgroup.controllers"} {
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", file))
		if err == nil && (file != "cgroup.controllers" || strings.Contains(string(text), "memory")) {
			return
		}
	}
	t.Skip("no memory controller")
}

// told waits until so many OOMs of a container were told.
func told(h *harness.Harness, container string, want int) error {
	return wait.Until(h.Context(), limit, fmt.Sprintf("%d OOMs of %s", want, container), func() error {
		all, err := h.Events.Of(container)
		if err != nil {
			return err
		}
		n := 0
		for _, e := range all {
			if e.Name == "oom" {
				n++
			}
		}
		if n < want {
			return fmt.Errorf("there are %v", all)
		}
		return nil
	})
}

// names are the events of a container; where a worker was killed, an OOM that was told
// twice in a row counts once.
func names(t *testing.T, h *harness.Harness, container string) []string {
	t.Helper()
	all, err := h.Events.Of(container)
	harness.Check(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.String())
	}
	return slices.CompactFunc(names, func(a, b string) bool { return a == "oom" && b == "oom" })
}

// cgroup is the directory of a container's cgroup that lists its processes.
func cgroup(pid uint32) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return "", err
	}
	dir := ""
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case parts[1] == "memory":
			return filepath.Join("/sys/fs/cgroup/memory", parts[2]), nil
		case parts[1] == "":
			dir = filepath.Join("/sys/fs/cgroup", parts[2])
		}
	}
	return dir, nil
}

// processes are those in a cgroup.
func processes(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
