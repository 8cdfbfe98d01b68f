package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/proc"
)

// sweep ends and removes whatever carries the test's name. After a good test
// that is only the empty directories that runc leaves as parents.
func (h *Harness) sweep(ctx context.Context) error {
	var errs []error
	for _, p := range h.processes() {
		err := proc.Kill(ctx, p.Pid, func(now proc.Process) bool { return slices.Equal(now.Args, p.Args) })
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	mounts := mountsBelow(h.Dir())
	slices.Reverse(mounts)
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	for _, dir := range h.cgroups() {
		errs = append(errs, RemoveCgroup(dir))
	}
	return errors.Join(append(errs, os.RemoveAll(h.runcState()))...)
}

// RemoveCgroup removes a cgroup and those below it, innermost first.
func RemoveCgroup(top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	for _, dir := range dirs {
		if e := unix.Rmdir(dir); e != nil && !errors.Is(e, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove cgroup %s: %w", dir, e))
		}
	}
	return err
}
