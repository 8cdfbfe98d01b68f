// Package options tests what a caller can choose besides a container's spec, as
// containerd hands it over: in the messages of runc's options and of TOML
// documents, on the shim's stdin and with Create, by the environment, and by the
// name and path of the shim.
package options

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
)

const (
	limit     = 30 * time.Second
	testLimit = 2 * time.Minute
)

// recorder is a runtime binary that is runc, and writes down how it is called.
type recorder struct{ path, log string }

// newRecorder is made before the harness, whose clean-up needs it.
func newRecorder(t *testing.T) recorder {
	t.Helper()
	runc, err := exec.LookPath("runc")
	harness.Check(t, err)
	dir := t.TempDir()
	r := recorder{filepath.Join(dir, "recorder"), filepath.Join(dir, "calls")}
	harness.Check(t, os.WriteFile(r.path, fmt.Appendf(nil, "#!/bin/bash\necho \"$*\" >> %s\nexec %s \"$@\"\n", r.log, runc), 0o755))
	return r
}

// call returns the arguments of the first call of a command.
func (r recorder) call(t *testing.T, command string) []string {
	t.Helper()
	text, err := os.ReadFile(r.log)
	harness.Check(t, err)
	for line := range strings.Lines(string(text)) {
		if args := strings.Fields(line); slices.Contains(args, command) {
			return args
		}
	}
	t.Fatalf("no call of %s in:\n%s", command, text)
	return nil
}

// document returns options that lead to a TOML file with this text.
func document(t *testing.T, text string) *runtimeoptions.Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "perdure.toml")
	harness.Check(t, os.WriteFile(path, []byte(text), 0o600))
	return &runtimeoptions.Options{ConfigPath: path}
}

// shimCgroup makes a cgroup for shims, in one hierarchy of version 1, or in the
// unified one.
func shimCgroup(t *testing.T) (name, dir string) {
	t.Helper()
	name = "/perdure-shims-" + strconv.Itoa(os.Getpid())
	dir = filepath.Join("/sys/fs/cgroup", name)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil {
		dir = filepath.Join("/sys/fs/cgroup/pids", name)
	}
	harness.Check(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { harness.Check(t, os.Remove(dir)) })
	return name, dir
}

func inCgroup(t *testing.T, dir string, pid int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	harness.Check(t, err)
	if !slices.Contains(strings.Fields(string(text)), strconv.Itoa(pid)) {
		t.Errorf("process %d is not in %s: %q", pid, dir, text)
	}
}

// TestChoices: the same choices by each way.
func TestChoices(t *testing.T) {
	harness.NeedsPerdure(t)
	calls := newRecorder(t)
	cgroup, dir := shimCgroup(t)
	root := t.TempDir()
	snake := fmt.Sprintf("binary_name = %q\nroot = %q\nno_pivot_root = true\nno_new_keyring = true\nshim_cgroup = %q\n", calls.path, root, cgroup)
	camel := fmt.Sprintf("BinaryName = %q\nRoot = %q\nNoPivotRoot = true\nNoNewKeyring = true\nShimCgroup = %q\n", calls.path, root, cgroup)
	ways := map[string]any{
		"runc": &runcoptions.Options{BinaryName: calls.path, Root: root, NoPivotRoot: true, NoNewKeyring: true, ShimCgroup: cgroup},
		"file": document(t, snake),
		"body": &runtimeoptions.Options{ConfigBody: []byte(camel)},
	}
	h := harness.New(t)
	for name, options := range ways {
		t.Run(name, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			harness.Check(t, os.WriteFile(calls.log, nil, 0o600))
			c, err := h.Run(ctx, name, harness.Config{Args: harness.Sleep(), Options: options})
			harness.Check(t, err)
			if r, err := c.Sh(ctx, "e", "echo out; exit 3"); err != nil || r.Code != 3 || r.Stdout != "out\n" {
				t.Errorf("an exec ended with %d, %v and said %q", r.Code, err, r.Stdout)
			}
			create := calls.call(t, "create")
			for _, want := range []string{"--no-pivot", "--no-new-keyring", filepath.Join(root, h.Namespace)} {
				if !slices.Contains(create, want) {
					t.Errorf("the runtime was called with %q, want %s in it", create, want)
				}
			}
			keeper, err := c.Keeper()
			harness.Check(t, err)
			inCgroup(t, dir, keeper)
			_, err = c.KillWorker(ctx)
			harness.Check(t, err)
			worker, err := c.Worker(ctx)
			harness.Check(t, err)
			inCgroup(t, dir, worker)
			harness.Check(t, c.Remove(ctx)) // by the options that the journal has
			calls.call(t, "delete")
			if left, err := os.ReadDir(filepath.Join(root, h.Namespace)); err != nil || len(left) > 0 {
				t.Errorf("the runtime's root still holds %v (%v)", left, err)
			}
		})
	}
}

// TestMistakes: each is told to the client, by start or by Create, and neither a
// process nor a file is left: the harness looks.
func TestMistakes(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	dir := t.TempDir()
	for name, test := range map[string]struct {
		options any
		words   []string
	}{
		"unknown-key":     {document(t, "root = \"/run/x\"\n\nbinary_nam = \"runc\"\n"), []string{"perdure.toml", "line 3", "binary_nam"}},
		"wrong-type":      {document(t, "systemd_cgroup = \"yes\"\n"), []string{"perdure.toml", "line 1", "systemd_cgroup"}},
		"in-the-body":     {&runtimeoptions.Options{ConfigBody: []byte("\nBinaryNam = 'runc'")}, []string{"config_body", "line 2", "BinaryNam"}},
		"no-file":         {&runtimeoptions.Options{ConfigPath: filepath.Join(dir, "none.toml")}, []string{"none.toml", "no such file"}},
		"relative-file":   {&runtimeoptions.Options{ConfigPath: "perdure.toml"}, []string{"perdure.toml", "absolute"}},
		"other-runtime":   {&runtimeoptions.Options{TypeUrl: "io.containerd.runsc.v1.options", ConfigBody: []byte("a = 1")}, []string{"runsc"}},
		"no-cgroup":       {&runcoptions.Options{ShimCgroup: "/no/such/cgroup"}, []string{"shim_cgroup", "/no/such/cgroup", "does not exist"}},
		"no-binary":       {&runcoptions.Options{BinaryName: "no-such-runtime"}, []string{"no-such-runtime"}},
		"relative-binary": {&runcoptions.Options{BinaryName: "bin/runc"}, []string{"bin/runc", "absolute"}},
		"log-directory":   {&runtimeoptions.Options{ConfigBody: fmt.Appendf(nil, "log_path = %q", dir)}, []string{"log_path", dir, "regular file"}},
		"no-log-dir":      {&runtimeoptions.Options{ConfigBody: fmt.Appendf(nil, "log_path = %q", dir+"/none/log")}, []string{"log_path", dir + "/none"}},
		"log-level":       {&runtimeoptions.Options{ConfigBody: []byte("log_level = 'loud'")}, []string{"log_level", "loud"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			c, err := h.Create(ctx, name, harness.Config{Options: test.options})
			for _, word := range test.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("the error is %v, want %q in it", err, word)
				}
			}
			harness.Check(t, c.Remove(ctx))
			run(ctx, t, h, name) // the id can be used at once
		})
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// run has a container without options live and go.
func run(ctx context.Context, t *testing.T, h *harness.Harness, id string) {
	t.Helper()
	c, err := h.Run(ctx, id, harness.Config{Args: harness.Shell("exit 4")})
	harness.Check(t, err)
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 4 {
		t.Errorf("a container without options ended with %d, %v", exit.Code, err)
	}
	harness.Check(t, c.Remove(ctx))
}

// TestCoreScheduling: containerd asks for it by the shim's environment.
func TestCoreScheduling(t *testing.T) {
	h := harness.New(t, "SCHED_CORE=1")
	ctx := h.Within(t, testLimit)
	ours, unsupported := cookie(os.Getpid())
	c, err := h.Run(ctx, "cookie", harness.Config{Args: harness.Sleep()})
	if unsupported != nil {
		t.Logf("core scheduling is not to be had here (%v): what is tested is how that is told", unsupported)
		if err == nil || !strings.Contains(err.Error(), "invalid argument") && !strings.Contains(err.Error(), "no such device") {
			t.Errorf("the error is %v", err)
		}
		if c.Task != nil || !errdefs.IsNotFound(taskError(ctx, c)) {
			t.Error("there is a task")
		}
		return
	}
	harness.Check(t, err)
	keeper, err := c.Keeper()
	harness.Check(t, err)
	of := func(pid int) uint64 {
		value, err := cookie(pid)
		harness.Check(t, err)
		return value
	}
	if shim, init := of(keeper), of(int(c.Task.Pid())); shim == ours || shim == 0 || init != shim {
		t.Errorf("cookies: ours %x, the shim's %x, the container's %x", ours, shim, init)
	}
}
