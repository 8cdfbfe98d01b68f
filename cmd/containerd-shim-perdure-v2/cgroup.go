package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where the hierarchies are mounted; tests have their own.
var cgroupRoot = "/sys/fs/cgroup"

// joinCgroup moves this process into the cgroup that the shim_cgroup option names;
// the keeper and all it starts are born there. Like containerd's own shim it
// expects the cgroup to be there: in the unified hierarchy, or else in at least one
// of version 1, of which it joins those that have it.
func joinCgroup(group string) error {
	clean := filepath.Clean("/" + group)
	if clean != "/"+strings.TrimPrefix(group, "/") || clean == cgroupRoot || strings.HasPrefix(clean, cgroupRoot+"/") {
		return fmt.Errorf("shim_cgroup %q is no path of a cgroup: it starts at the root of the hierarchy, like /shims/perdure", group)
	}
	joined := 0
	hierarchies, err := cgroupHierarchies()
	for _, hierarchy := range hierarchies {
		err = enter(filepath.Join(hierarchy, clean))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("shim_cgroup %s: %w", group, err)
		}
		joined++
	}
	if joined == 0 {
		return fmt.Errorf("shim_cgroup %s does not exist: make it first (%v)", group, err)
	}
	return nil
}

// enter writes into a cgroup.procs, which must be there.
func enter(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strconv.Itoa(os.Getpid()))
	return errors.Join(err, f.Close())
}

// cgroupHierarchies lists the mount points that count: the unified hierarchy where
// it is alone, else all of version 1.
func cgroupHierarchies() ([]string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(cgroupRoot, &st); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: cgroupRoot, Err: err}
	}
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		return []string{cgroupRoot}, nil
	}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC && e.IsDir() {
			found = append(found, dir)
		}
	}
	return found, nil
}
