package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// leftoverLimit is how long things may take to go after the suite's end.
const leftoverLimit = 10 * time.Second

// leftovers waits for everything of the tests to be gone, and lists what is not.
func (l *runner) leftovers(ctx context.Context) []string {
	var left []string
	err := wait.Until(ctx, leftoverLimit, "everything of the tests to be gone", func() error {
		left = slices.DeleteFunc(l.changes(), known)
		if len(left) > 0 {
			return fmt.Errorf("%d things are left", len(left))
		}
		return nil
	})
	if err == nil {
		return nil
	}
	return left
}

// known are containerd's own, which every one of its ends leaves.
func known(left string) bool {
	return slices.Contains([]string{
		"file /run/nri/nri.sock",
		"file /run/containerd-test/io.containerd.mount-manager.v1.bolt/mounts.db",
	}, left)
}

// changes lists what there is now and was not before, one line for each thing.
func (l *runner) changes() []string {
	var left []string
	for _, p := range strangers() {
		left = append(left, "process "+p.String())
	}
	for _, m := range l.newMounts() {
		left = append(left, "mount "+m)
	}
	for _, dir := range newCgroups(l.cgroups) {
		// Lanes share the hierarchies. runc makes the namespace's and leaves it.
		if filepath.Base(filepath.Dir(dir)) == "testing" && lane(filepath.Base(dir)) == l.Lane {
			left = append(left, "cgroup "+dir)
		}
	}
	left = append(left, directories("runc state", "/run/containerd/runc/testing")...)
	return append(left, files("file", masked...)...)
}

// strangers are the processes of this pid namespace but the first and this one.
func strangers() []proc.Process {
	found, err := proc.Select(func(p proc.Process) bool { return p.Pid != 1 && p.Pid != os.Getpid() })
	if err != nil {
		return nil
	}
	return found
}

func mountPoints() (map[string]bool, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			all[f[4]] = true
		}
	}
	return all, nil
}

// newMounts are those that were not there before, innermost last.
func (l *runner) newMounts() []string {
	mounts, err := mountPoints()
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for m := range mounts {
		if !l.mounts[m] {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return all
}

// directories lists those in dir.
func directories(what, dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var all []string
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, what+" "+filepath.Join(dir, e.Name()))
		}
	}
	return all
}

// files lists everything below dirs that is no directory.
func files(what string, dirs ...string) []string {
	var all []string
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // never fails
			if err == nil && !d.IsDir() {
				all = append(all, what+" "+path)
			}
			return nil
		})
	}
	return all
}

// restore ends and removes whatever was not there before. Cgroups are removed
// when all lanes have ended.
func (l *runner) restore(ctx context.Context) error {
	if err := endStrangers(ctx); err != nil {
		return err
	}
	var errs []error
	mounts := l.newMounts()
	slices.Reverse(mounts)
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	for _, dir := range append(slices.Clone(masked), l.temp()) {
		errs = append(errs, wipe(dir))
	}
	return errors.Join(errs...)
}

// endStrangers kills until nobody is left: shims start new processes.
func endStrangers(ctx context.Context) error {
	return wait.Until(ctx, leftoverLimit, "the tests' processes to end", func() error {
		left := strangers()
		for _, p := range left {
			if p.State == 'Z' {
				continue
			}
			err := proc.Kill(ctx, p.Pid, func(now proc.Process) bool { return now.Name == p.Name })
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d are left, the first is %v", len(left), left[0])
		}
		return nil
	})
}

// wipe removes what is in dir.
func wipe(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return errors.Join(errs...)
}
