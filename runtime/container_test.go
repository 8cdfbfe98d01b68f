package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait of the tests. It is reached only by failures.
const patience = time.Minute

var serial atomic.Int64

// container is a bundle with a busybox root file system and the Runc for it. Its
// clean-up checks that nothing of it is left on the machine.
type container struct {
	*Runc
	t     *testing.T
	ctx   context.Context
	store *store
	dir   string // fifos
	calls int
	ios   []*IO
}

type change func(config map[string]any)

func newContainer(t *testing.T, changes ...change) *container {
	return newContainerOf(t, "runc", changes...)
}

func newContainerOf(t *testing.T, binary string, changes ...change) *container {
	t.Helper()
	requireRoot(t)
	binary = runtimeBinary(t, binary)
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	id := fmt.Sprintf("perdure-test-%d-%d", os.Getpid(), serial.Add(1))
	bundle := filepath.Join(t.TempDir(), "bundle")
	writeBundle(t, bundle, id, changes)
	c := &container{t: t, ctx: ctx, store: newStore(t), dir: t.TempDir()}
	c.Runc = New(Config{
		Namespace: "test", ID: id, Bundle: bundle, Instance: "i1", Binary: binary,
		Root: filepath.Join(t.TempDir(), "root"), KeeperPID: os.Getpid(), Timeout: patience,
	})
	t.Cleanup(c.remove)
	return c
}

// runtimeBinary finds the runtime. crun refuses cgroups in hybrid mode, so it is shown
// none of version 2 where there are both.
func runtimeBinary(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s: apt-get install %s", name, name)
	}
	const unified = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(unified); name != "crun" || err != nil {
		return path
	}
	wrapper := filepath.Join(t.TempDir(), name)
	script := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'umount %s; exec %s \"$@\"' crun \"$@\"\n", unified, path)
	must(t, os.WriteFile(wrapper, []byte(script), 0o700))
	return wrapper
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func args(args ...string) change {
	return func(config map[string]any) { config["process"].(map[string]any)["args"] = args }
}

func shell(script string) change { return args("/bin/sh", "-c", script) }

func terminal(config map[string]any) { config["process"].(map[string]any)["terminal"] = true }

func user(uid int) change {
	return func(config map[string]any) {
		config["process"].(map[string]any)["user"] = map[string]any{"uid": uid, "gid": uid}
	}
}

func hook(kind string, argv ...string) change {
	return func(config map[string]any) {
		config["hooks"] = map[string]any{kind: []any{map[string]any{"path": argv[0], "args": argv}}}
	}
}

func writeBundle(t *testing.T, bundle, id string, changes []change) {
	t.Helper()
	bin := filepath.Join(bundle, "rootfs", "bin")
	for _, dir := range []string{bin, filepath.Join(bundle, "rootfs", "proc"), filepath.Join(bundle, "rootfs", "tmp"), filepath.Join(bundle, "rootfs", "dev")} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	box, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Skip("no /bin/busybox: apt-get install busybox-static")
	}
	must(t, os.WriteFile(filepath.Join(bin, "busybox"), box, 0o755))
	for _, applet := range strings.Fields("sh cat echo sleep id stty dd true env ls head printf mount kill tr wc") {
		must(t, os.Symlink("busybox", filepath.Join(bin, applet)))
	}
	mounts := []any{
		map[string]any{"destination": "/proc", "type": "proc", "source": "proc"},
		map[string]any{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		map[string]any{"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": []string{"newinstance", "ptmxmode=0666", "mode=0620"}},
	}
	config := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"args": []string{"/bin/sleep", "1000"}, "cwd": "/", "env": []string{"PATH=/bin"},
			"user":         map[string]any{"uid": 0, "gid": 0},
			"capabilities": map[string]any{},
		},
		"root":   map[string]any{"path": "rootfs"},
		"mounts": mounts,
		"linux": map[string]any{
			"cgroupsPath": "/" + id,
			"namespaces":  []any{map[string]any{"type": "pid"}, map[string]any{"type": "mount"}, map[string]any{"type": "ipc"}, map[string]any{"type": "uts"}},
		},
	}
	for _, change := range changes {
		change(config)
	}
	text, err := json.Marshal(config)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600))
}

func (c *container) intent(op string) string {
	c.calls++
	return fmt.Sprintf("%s-%d", op, c.calls)
}

// fifo makes a fifo of the client's.
func (c *container) fifo(name string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	must(c.t, unix.Mkfifo(path, 0o600))
	return path
}

func (c *container) openIO(prefix string, s Stdio, o IOOptions) *IO {
	c.t.Helper()
	o.Bundle = c.Bundle
	io, err := OpenIO(c.store, prefix, s, o)
	must(c.t, err)
	c.ios = append(c.ios, io)
	return io
}

// create creates the container, run also starts it.
func (c *container) create(s Stdio, o IOOptions) (*IO, int) {
	c.t.Helper()
	o.Intent = c.intent("create")
	io := c.openIO("init", s, o)
	pid, err := c.Create(c.ctx, o.Intent, io, nil)
	must(c.t, err)
	must(c.t, io.Started())
	return io, pid
}

func (c *container) run(s Stdio, o IOOptions) (*IO, int) {
	c.t.Helper()
	io, pid := c.create(s, o)
	must(c.t, c.Start(c.ctx, c.intent("start")))
	return io, pid
}

func (c *container) exec(name string, s Stdio, argv ...string) (*IO, int) {
	c.t.Helper()
	intent := c.intent("exec")
	io := c.openIO("exec/"+name, s, IOOptions{Intent: intent})
	process, err := json.Marshal(map[string]any{"args": argv, "cwd": "/", "env": []string{"PATH=/bin"}, "user": map[string]any{"uid": 0, "gid": 0}})
	must(c.t, err)
	pid, err := c.Exec(c.ctx, intent, process, io, nil)
	must(c.t, err)
	must(c.t, io.Started())
	return io, pid
}

// remove ends the container and checks that nothing is left of it.
func (c *container) remove() {
	must(c.t, c.Delete(context.Background(), c.intent("delete"), true))
	for _, io := range c.ios {
		must(c.t, io.Close())
	}
	if _, err := c.State(context.Background()); err == nil {
		c.t.Errorf("the runtime still knows container %s", c.ID)
	}
	await(c.t, "no process of "+c.ID+" is left", func() bool { return len(c.processes()) == 0 })
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(c.t, err)
	if strings.Contains(string(mounts), c.Bundle) {
		c.t.Errorf("mounts of %s are left", c.Bundle)
	}
	if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + c.ID); len(left) > 0 {
		c.t.Errorf("cgroups are left: %v", left)
	}
}

// processes are those in the container's cgroup and those that carry its markers.
func (c *container) processes() []int {
	var found []int
	all, err := allProcesses()
	must(c.t, err)
	for _, pid := range all {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if strings.Contains(string(env), "/"+c.ID+"/") || strings.Contains(string(groups), "/"+c.ID) {
			if _, err := StartTime(pid); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await polls for what has no descriptor to wait on.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// reap waits for a child of the test, which is the subreaper, and returns its status.
func reap(t *testing.T, pid int) int {
	t.Helper()
	must(t, awaitEnd(pid))
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		must(t, err)
		if status.Signaled() {
			return 128 + int(status.Signal())
		}
		return status.ExitStatus()
	}
}

func awaitEnd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	deadline := time.Now().Add(patience)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if n == 1 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not ended within %s", pid, patience)
		}
	}
}
