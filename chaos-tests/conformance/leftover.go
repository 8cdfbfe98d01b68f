package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// leftoverLimit is how long things may take to go after the suite's end.
const leftoverLimit = 10 * time.Second

// scene is what there was before a part.
type scene struct {
	mounts  map[string]bool
	cgroups map[string]bool // the hierarchies' first level
}

func look() (*scene, error) {
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	s := &scene{mounts: map[string]bool{}, cgroups: map[string]bool{}}
	for _, m := range mounts {
		s.mounts[m] = true
	}
	for _, dir := range firstLevel() {
		s.cgroups[dir] = true
	}
	return s, nil
}

// leftovers waits for everything of the part to be gone, and lists what is not.
func (b *batches) leftovers(ctx context.Context) []string {
	var left []string
	err := wait.Until(ctx, leftoverLimit, "everything of the part to be gone", func() error {
		if left = b.before.changes(b.dir); len(left) > 0 {
			return fmt.Errorf("%d things are left", len(left))
		}
		return nil
	})
	if err == nil {
		return nil
	}
	return left
}

// changes lists what there is now and was not before, one line for each thing.
func (s *scene) changes(dir string) []string {
	var left []string
	for _, p := range strangers() {
		left = append(left, "process "+p.String())
	}
	for _, m := range s.newMounts() {
		left = append(left, "mount "+m)
	}
	for _, group := range s.newCgroups() {
		left = append(left, children("cgroup", group)...)
	}
	left = append(left, children("runc state", "/run/containerd/runc/testing")...)
	left = append(left, files("file", "/run", "/var/lib", "/opt")...)
	return left
}

// strangers are the processes of this pid namespace but the first and this one.
func strangers() []proc.Process {
	found, err := proc.Select(func(p proc.Process) bool { return p.Pid != 1 && p.Pid != os.Getpid() })
	if err != nil {
		return nil
	}
	return found
}

func mountPoints() ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, f[4])
		}
	}
	return all, nil
}

func (s *scene) newMounts() []string {
	mounts, err := mountPoints()
	if err != nil {
		return []string{err.Error()}
	}
	return slices.DeleteFunc(mounts, func(m string) bool { return s.mounts[m] })
}

// firstLevel lists the cgroups directly below the root of each hierarchy; on a
// unified one, which has no hierarchies below its root, below that.
func firstLevel() []string {
	one, _ := filepath.Glob("/sys/fs/cgroup/*") // the pattern is well-formed
	two, _ := filepath.Glob("/sys/fs/cgroup/*/*")
	return slices.DeleteFunc(append(one, two...), func(path string) bool {
		info, err := os.Lstat(path)
		return err != nil || !info.IsDir()
	})
}

// ours are the names that the suite gives to cgroups: its namespace, that of
// shims, and a nanosecond. Others may come and go on the machine meanwhile.
var ours = regexp.MustCompile(`^(testing|containerd|[0-9]{1,9})$`)

// newCgroups are those of the suite. What was there before is not its.
func (s *scene) newCgroups() []string {
	return slices.DeleteFunc(firstLevel(), func(dir string) bool {
		return s.cgroups[dir] || !ours.MatchString(filepath.Base(dir))
	})
}

// children lists the directories in dir. Parents that runc and containerd make
// and never remove do not count, their children do.
func children(what, dir string) []string {
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

// restore ends and removes whatever was not there before.
func (s *scene) restore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leftoverLimit)
	defer cancel()
	if err := endStrangers(ctx); err != nil {
		return err
	}
	var errs []error
	mounts := s.newMounts()
	slices.Reverse(mounts)
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	for _, group := range s.newCgroups() {
		errs = append(errs, harness.RemoveCgroup(group))
	}
	for _, dir := range masked {
		errs = append(errs, wipe(dir))
	}
	return errors.Join(errs...)
}

// endStrangers kills until nobody is left: shims start new processes.
func endStrangers(ctx context.Context) error {
	return wait.Until(ctx, leftoverLimit, "the part's processes to end", func() error {
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
