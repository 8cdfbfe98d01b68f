package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"golang.org/x/sys/unix"
)

// The hierarchies of cgroups are the one thing that a lane shares with the
// machine and the other lanes.

// ours are the names that the suite gives to cgroups below the root: its
// namespace, that of shims, and a nanosecond.
var ours = regexp.MustCompile(`^(testing|containerd|[0-9]{1,9})$`)

// cgroups returns all that are named so, and those below them.
func cgroups() map[string]bool {
	all := map[string]bool{}
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*"} { // unified, or one for each controller
		tops, _ := filepath.Glob(pattern) // the pattern is well-formed
		for _, top := range tops {
			if ours.MatchString(filepath.Base(top)) {
				addBelow(all, top)
			}
		}
	}
	return all
}

func addBelow(all map[string]bool, top string) {
	filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error { //nolint:errcheck // never fails
		if err == nil && d.IsDir() {
			all[path] = true
		}
		return nil // one that goes away meanwhile is not one that is left
	})
}

// newCgroups lists those that are not in before, innermost first.
func newCgroups(before map[string]bool) []string {
	var all []string
	for dir := range cgroups() {
		if !before[dir] {
			all = append(all, dir)
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all
}

// removeCgroups removes those that are not in before.
func removeCgroups(before map[string]bool) error {
	var errs []error
	for _, dir := range newCgroups(before) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
