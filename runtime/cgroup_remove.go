package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// known reports whether the runtime will find a container's state, and with it the
// cgroup that it has to remove: runc's state.json, crun's status.
func (r *Runc) known() bool {
	for _, file := range []string{"state.json", "status"} {
		if _, err := os.Lstat(filepath.Join(r.Root, r.ID, file)); err == nil {
			return true
		}
	}
	return false
}

// RemoveCgroup removes what a runtime leaves that was killed after it had made a
// container's cgroup and before it kept where that is. Only an absolute path that ends
// in the container's id can be told from somebody else's; systemd removes its scopes
// itself. A cgroup with processes is not removed, and the error says so, when they have
// not gone within cgroupLimit: the runtime's own child dies with it.
func (r *Runc) RemoveCgroup(ctx context.Context) error {
	spec, err := ReadSpec(r.Bundle)
	if err != nil || !filepath.IsAbs(spec.CgroupsPath) || filepath.Base(spec.CgroupsPath) != r.ID {
		return nil // without its spec nothing of it can be known
	}
	mounts, err := cgroupMounts()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cgroupLimit)
	defer cancel()
	var errs []error
	for _, m := range mounts {
		errs = append(errs, removeEmpty(ctx, m.directory(filepath.Clean(spec.CgroupsPath))))
	}
	return errors.Join(errs...)
}

// cgroupLimit is how long the child of a killed runtime may take to end.
const cgroupLimit = 2 * time.Second

// removeEmpty removes a cgroup's directory once no process is in it.
func removeEmpty(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, unix.ENOENT):
			return nil
		case !errors.Is(err, unix.EBUSY) || ctx.Err() != nil:
			return fmt.Errorf("remove cgroup %s, which a killed runtime has left: %w", dir, err)
		}
		there := members(dir)
		if len(there) > 0 {
			awaitAll(ctx, there)
		} else { // on their way out, and no longer listed
			time.Sleep(leaving)
		}
		closeAll(there...)
	}
}

// members returns pidfds of the processes in a cgroup.
func members(dir string) (pidfds []*os.File) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	for _, field := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			pidfds = append(pidfds, os.NewFile(uintptr(fd), "pidfd"))
		}
	}
	return pidfds
}
