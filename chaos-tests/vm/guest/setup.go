package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mounts are made in this order.
var mounts = []struct {
	kind, at string
	flags    uintptr
	options  string
}{
	{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	{"cgroup2", "/sys/fs/cgroup", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, "nsdelegate,memory_recursiveprot"},
	{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=755"},
	{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=666,mode=620,gid=5"},
	{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
	{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
	{"tmpfs", "/var", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
}

func setUp(modules []string) error {
	if err := leaveRootfs(); err != nil {
		return fmt.Errorf("leave the first root file system: %w", err)
	}
	for _, m := range mounts {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.at, err)
		}
	}
	if err := links(); err != nil {
		return err
	}
	for _, file := range modules {
		if err := load(file); err != nil {
			return fmt.Errorf("load %s: %w", file, err)
		}
	}
	if err := loopback(); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return groups()
}

// leaveRootfs makes the root an ordinary mount: pivot_root, which runc calls,
// is refused where the root is the kernel's own first one, since that has no
// parent. A bind mount of it, moved on top of it, has. Shared, as systemd has it.
func leaveRootfs() error {
	const at = "/root-of-all"
	return errors.Join(
		os.Mkdir(at, 0o755),
		unix.Mount("/", at, "", unix.MS_BIND, ""),
		unix.Chdir(at),
		unix.Mount(".", "/", "", unix.MS_MOVE, ""),
		unix.Chroot("."),
		unix.Chdir("/"),
		unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""),
	)
}

// links makes what udev would.
func links() error {
	return errors.Join(
		os.Remove("/dev/ptmx"),
		os.Symlink("pts/ptmx", "/dev/ptmx"),
		os.Symlink("/proc/self/fd", "/dev/fd"),
		os.MkdirAll("/var/tmp", 0o1777),
		os.MkdirAll("/var/lib", 0o755),
	)
}

func load(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request)
}

// ours is the control group of all that is no container, as a service's is.
const ours = "/sys/fs/cgroup/tests.service"

// groups switches the controllers on for all groups, and goes into one.
func groups() error {
	const top = "/sys/fs/cgroup"
	available, err := os.ReadFile(filepath.Join(top, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(available)) {
		if err := os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+name), 0); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return errors.Join(os.Mkdir(ours, 0o755), os.WriteFile(filepath.Join(ours, "cgroup.procs"), []byte("1"), 0))
}
