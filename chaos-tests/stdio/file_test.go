package stdio

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"

	"perdure/chaos-tests/harness"
)

func TestFileOfInitAndExecs(t *testing.T) {
	h, ctx := start(t)
	path := filepath.Join(h.Dir(), "logs", "deep", "log")
	to := cio.LogFile(path)
	c := run(ctx, t, h, "logged", harness.Config{Args: harness.Shell("echo out; echo err >&2; exec sleep 1000"), IO: to})
	await(ctx, t, path, "out\n")
	await(ctx, t, path, "err\n")
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell("echo exec-out; echo exec-err >&2; exit 3"), IO: to})
	harness.Check(t, err)
	r, err := e.Finish(ctx)
	harness.Check(t, err)
	if got := content(t, path); r.Code != 3 || len(got) != 8+18 || !strings.Contains(got, "exec-out\n") || !strings.Contains(got, "exec-err\n") {
		t.Errorf("after an exec that ended with %d the file has %q", r.Code, got)
	}
	info, err := os.Stat(path)
	harness.Check(t, err)
	if info.Mode().Perm() != 0o644 || !info.Mode().IsRegular() {
		t.Errorf("the file's mode is %v", info.Mode())
	}
}

// Rotation by renaming goes on in the renamed file, rotation by truncation at
// the file's new end: no hole, no byte twice.
func TestFileThatIsRotated(t *testing.T) {
	h, ctx := start(t)
	gates, err := h.NewGates("go")
	harness.Check(t, err)
	path := filepath.Join(h.Dir(), "output")
	harness.Check(t, os.WriteFile(path, []byte("before\n"), 0o600))
	c := run(ctx, t, h, "rotated", harness.Config{
		Args: harness.Shell("for i in 1 2 3; do echo line-$i; " + gates.Await("go") + "done; exit 5"), IO: cio.LogFile(path), Mounts: mounts(gates.Mount()),
	})
	await(ctx, t, path, "before\nline-1\n")
	harness.Check(t, os.Truncate(path, 0))
	harness.Check(t, gates.Open("go"))
	await(ctx, t, path, "line-2\n")
	if got := content(t, path); got != "line-2\n" {
		t.Errorf("after it was truncated the file has %q", got)
	}
	harness.Check(t, os.Rename(path, path+".1"))
	harness.Check(t, gates.Open("go"))
	await(ctx, t, path+".1", "line-2\nline-3\n")
	harness.Check(t, gates.Open("go"))
	end(ctx, t, c, 5)
}

// Byte for byte, with the worker killed all along, through a pipe and through a
// terminal.
func TestFileOverKills(t *testing.T) {
	harness.NeedsPerdure(t)
	for name, c := range map[string]struct {
		terminal   bool
		script     string
		size, step int64
	}{
		"pipe":     {false, "cat /input; exit 9", 100 << 20, 4 << 20},
		"terminal": {true, "stty -opost; cat /input; exit 9", 8 << 20, 512 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h, ctx := start(t)
			path := filepath.Join(h.Dir(), "output")
			input, mount := bytes(t, h.Dir(), c.size)
			began := time.Now()
			box := run(ctx, t, h, "killed", harness.Config{
				Args: harness.Shell(c.script), IO: uri("file", path, "", c.terminal), Terminal: c.terminal, Mounts: mounts(mount),
			})
			killAlong(ctx, t, box, path, c.step, c.size)
			end(ctx, t, box, 9)
			t.Logf("measured: %v", time.Since(began).Round(time.Millisecond))
			same(t, path, input)
		})
	}
}
