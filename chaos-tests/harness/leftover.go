package harness

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// leftoverLimit is how long processes may take to go after the last delete.
const leftoverLimit = 10 * time.Second

// checkLeftovers fails the test for everything of it that is still there once
// its containers are deleted and containerd is stopped, and then takes that
// away so that the next test is not harmed.
func (h *Harness) checkLeftovers(ctx context.Context) {
	var left []string
	err := wait.Until(ctx, leftoverLimit, "everything of the test to be gone", func() error {
		if left = h.leftovers(); len(left) > 0 {
			return fmt.Errorf("%d things are left", len(left))
		}
		return nil
	})
	if err != nil {
		h.t.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
	}
	if err := h.sweep(ctx); err != nil {
		h.t.Errorf("clean-up: %v", err)
	}
}

// leftovers lists what is still there, one line for each thing.
func (h *Harness) leftovers() []string {
	var left []string
	for _, p := range h.processes() {
		left = append(left, "process "+p.String())
	}
	for _, m := range mountsBelow(h.Dir()) {
		left = append(left, "mount "+m)
	}
	for _, dir := range h.cgroups() {
		left = append(left, below("cgroup", dir)...)
	}
	left = append(left, below("runc state", h.runcState())...)
	left = append(left, below(SocketLeft, h.Sockets())...)
	left = append(left, below(fifoLeft, h.fifos())...)
	left = append(left, h.bundles()...)
	return append(left, below("spooled journal", h.Spool())...)
}

// Gone waits until nothing of the test's shims is left, while containerd goes on: no process, mount, cgroup, runtime state,
// socket, lock, bundle or spooled journal, but for some kinds of them. Only for a test that has no other container at that
// time.
func (h *Harness) Gone(ctx context.Context, but ...string) error {
	but = append(but, fifoLeft)
	return wait.Until(ctx, leftoverLimit, "all shims to be gone", func() error {
		left := slices.DeleteFunc(h.leftovers(), func(thing string) bool {
			return slices.ContainsFunc(but, func(kind string) bool { return strings.HasPrefix(thing, kind) })
		})
		if len(left) > 0 {
			return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
}

// Kinds of leftovers.
const (
	fifoLeft   = "client's fifo"       // the client's, who is the test
	SocketLeft = "shim socket or lock" // where containerd has asked nobody to clean up, the next start does
)

// bundles are the directories that containerd keeps for its tasks.
func (h *Harness) bundles() []string {
	var left []string
	for _, dir := range []string{h.State(), filepath.Join(h.Dir(), "root")} {
		left = append(left, below("bundle", filepath.Join(dir, "io.containerd.runtime.v2.task", h.Namespace))...)
	}
	return left
}

// processes returns all processes that carry the test's namespace or directory
// in arguments, environment or control group, zombies included.
func (h *Harness) processes() []proc.Process {
	found, err := proc.Select(func(p proc.Process) bool {
		return p.Pid != os.Getpid() && p.Pid != h.Pid() && (p.Mentions(h.Namespace) || p.Mentions(h.Dir()))
	})
	if err != nil {
		h.t.Errorf("look for processes: %v", err)
	}
	return found
}

// below lists what a directory holds; one that does not exist holds nothing.
func below(what, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(what, "cgroup") && !e.IsDir() {
			continue
		}
		all = append(all, what+" "+filepath.Join(dir, e.Name()))
	}
	return all
}

// Spool is where perdure keeps the journals of deleted containers that have
// events unsent: beside the bundles. It is not there when it has none.
func (h *Harness) Spool() string { return h.Bundle(h.Namespace, ".perdure") }

func (h *Harness) runcState() string { return filepath.Join("/run/containerd/runc", h.Namespace) }

// cgroups returns the directories named after the test's namespace, in all
// hierarchies. runc makes them as parents and never removes them.
func (h *Harness) cgroups() []string {
	var found []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // a cgroup that goes away meanwhile is not one that is left
		}
		if d.Name() == h.Namespace {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		h.t.Errorf("look for cgroups: %v", err)
	}
	return found
}

// mountsBelow returns the mount points below dir, innermost last.
func mountsBelow(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], dir+"/") {
			found = append(found, f[4])
		}
	}
	return found
}
