package stdio

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
)

// firstID is the host's id of the root of containers with a user namespace.
const firstID = 100000

var idMap = []specs.LinuxIDMapping{{ContainerID: 0, HostID: firstID, Size: 65536}}

// reopening writes to a process's outputs by each of their names.
const reopening = "echo plain; echo by-name >/dev/stdout; echo by-number >/proc/self/fd/1; echo err >/dev/stderr; id -u"

func userNamespace() oci.SpecOpts { return oci.WithUserNamespace(idMap, idMap) }

func remapped(id string, i client.Image) client.NewContainerOpts {
	return client.WithUserNSRemappedSnapshot(id, i, idMap, idMap)
}

// reopened runs a container that writes to its outputs by name, and an exec that
// does, and compares what arrives.
func reopened(ctx context.Context, t *testing.T, h *harness.Harness, id, uid string, cfg harness.Config) {
	t.Helper()
	want := "plain\nby-name\nby-number\n" + uid + "\n"
	cfg.Args = harness.Shell(reopening + "; exec sleep 1000")
	c := run(ctx, t, h, id, cfg)
	harness.Check(t, c.Stdout.Await(limit, want))
	harness.Check(t, c.Stderr.Await(limit, "err\n"))
	if r, err := c.Sh(ctx, "e1", reopening); err != nil || r.Stdout != want || r.Stderr != "err\n" {
		t.Errorf("an exec said %q and %q: %v", r.Stdout, r.Stderr, err)
	}
	harness.Check(t, c.DeleteTask(ctx))
}

func TestAUserReopensItsOutput(t *testing.T) {
	h, ctx := start(t)
	reopened(ctx, t, h, "user", "1000", harness.Config{Spec: []oci.SpecOpts{oci.WithUIDGID(1000, 1000)}})
}

// The pipes belong to ids inside the namespace (io_uid, io_gid), or nobody in it
// could open them.
func TestUserNamespace(t *testing.T) {
	harness.NeedsPerdure(t) // the stock shim takes these options too; its fifos are the same
	h, ctx := start(t)
	passable(t, h)
	opts := &options.Options{IoUid: firstID, IoGid: firstID}
	for id, uid := range map[string]uint32{"root": 0, "other": 1000} {
		reopened(ctx, t, h, id, map[uint32]string{0: "0", 1000: "1000"}[uid], harness.Config{
			Spec: []oci.SpecOpts{userNamespace(), oci.WithUIDGID(uid, uid)}, Options: opts, Snapshot: remapped,
		})
	}
	dir := t.TempDir()
	c := run(ctx, t, h, "logged", harness.Config{
		Args: harness.Shell(reopening), Spec: []oci.SpecOpts{userNamespace()}, Options: opts, Snapshot: remapped,
		IO: uri("binary-v2", program(t), loggerQuery("ready", dir), false),
	})
	await(ctx, t, dir+"/stdout", "plain\nby-name\nby-number\n0\n")
	end(ctx, t, c, 0)
	c = run(ctx, t, h, "filed", harness.Config{
		Args: harness.Shell(reopening), Spec: []oci.SpecOpts{userNamespace()}, Options: opts, Snapshot: remapped,
		IO: uri("file", dir+"/log", "", false),
	})
	await(ctx, t, dir+"/log", "by-number\n")
	end(ctx, t, c, 0)
	info, err := os.Stat(dir + "/log")
	harness.Check(t, err)
	if owner := ownerOf(info); owner != 0 {
		t.Errorf("the log has been given to user %d", owner)
	}
}

// A root file system whose mount maps ids: what root in the container writes
// belongs to root on the host's disk, not to the host's id of that root.
func TestIDMappedRootfs(t *testing.T) {
	h, ctx := start(t)
	root := t.TempDir()
	harness.Check(t, os.Chmod(root, 0o755))
	for _, dir := range []string{"bin", "dev", "etc", "proc", "sys", "run", "tmp"} {
		harness.Check(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	harness.Check(t, err)
	program, err := os.ReadFile(busybox)
	harness.Check(t, err)
	harness.Check(t, os.WriteFile(filepath.Join(root, "bin", "busybox"), program, 0o755))
	for _, name := range []string{"sh", "id", "sleep"} {
		harness.Check(t, os.Symlink("busybox", filepath.Join(root, "bin", name)))
	}
	if err := mapped(root); err != nil {
		t.Skipf("the file system of %s has no id-mapped mounts: %v", root, err)
	}
	passable(t, h)
	c := run(ctx, t, h, "mapped", harness.Config{
		Args:     harness.Shell("echo here >/written; id -u; exit 3"),
		Spec:     []oci.SpecOpts{userNamespace()},
		Options:  &options.Options{IoUid: firstID, IoGid: firstID},
		Snapshot: func(string, client.Image) client.NewContainerOpts { return client.WithSnapshotter("") },
		Task: []client.NewTaskOpts{client.WithRootFS([]mount.Mount{{
			Type: "bind", Source: root, Options: []string{"rbind", "rw", "uidmap=0:100000:65536", "gidmap=0:100000:65536"},
		}})},
	})
	harness.Check(t, c.Stdout.Await(limit, "0\n"))
	end(ctx, t, c, 3)
	info, err := os.Stat(filepath.Join(root, "written"))
	harness.Check(t, err)
	if owner := ownerOf(info); owner != 0 {
		t.Errorf("what the container's root has written belongs to %d on the disk", owner)
	}
}

// passable lets other users than root through the daemon's directory, as through
// containerd's usual ones.
func passable(t *testing.T, h *harness.Harness) {
	t.Helper()
	harness.Check(t, os.Chmod(h.Dir(), 0o711))
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// mapped tries an id-mapped mount of a directory.
func mapped(dir string) error {
	target, err := os.MkdirTemp("", "mapped")
	if err != nil {
		return err
	}
	defer os.Remove(target)
	m := mount.Mount{Type: "bind", Source: dir, Options: []string{"rbind", "ro", "uidmap=0:100000:65536", "gidmap=0:100000:65536"}}
	if err := m.Mount(target); err != nil {
		return err
	}
	return unix.Unmount(target, unix.MNT_DETACH)
}
