package options

import (
	"os"
	"path/filepath"
	"testing"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

// TestUnderTheStockShimsName: CRI's runtime_path has the binary of a runtime of type
// io.containerd.runc.v2 replaced by another: by ours, copied there beside its
// worker's program, or linked to.
func TestUnderTheStockShimsName(t *testing.T) {
	harness.NeedsPerdure(t)
	calls := newRecorder(t)
	bin, err := daemon.Bin()
	harness.Check(t, err)
	shim, worker := filepath.Join(bin, "containerd-shim-perdure-v2"), filepath.Join(bin, "perdure")
	const stockName = "containerd-shim-runc-v2"
	copied := filepath.Join(t.TempDir(), stockName)
	text, err := os.ReadFile(shim)
	harness.Check(t, err)
	harness.Check(t, os.WriteFile(copied, text, 0o755))
	harness.Check(t, os.Symlink(worker, filepath.Join(filepath.Dir(copied), "perdure")))
	linked := filepath.Join(t.TempDir(), stockName)
	harness.Check(t, os.Symlink(shim, linked))
	h := harness.New(t)
	for name, path := range map[string]string{"copied": copied, "linked": linked} {
		t.Run(name, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			harness.Check(t, os.WriteFile(calls.log, nil, 0o600))
			c, err := h.Run(ctx, name, harness.Config{
				Args: harness.Sleep(), Runtime: harness.Stock, Binary: path, Options: &runcoptions.Options{BinaryName: calls.path},
			})
			harness.Check(t, err)
			calls.call(t, "create")
			if name == "linked" {
				c.Runtime = daemon.Runtime() // the keeper's name is the file's
			}
			_, err = c.KillWorker(ctx)
			harness.Check(t, err)
			if r, err := c.Sh(ctx, "e", "echo out; exit 3"); err != nil || r.Code != 3 || r.Stdout != "out\n" {
				t.Errorf("an exec ended with %d, %v and said %q", r.Code, err, r.Stdout)
			}
			harness.Check(t, h.Stop(ctx))
			harness.Check(t, h.Start(ctx))
			harness.Check(t, c.Load(ctx))
			if r, err := c.Sh(ctx, "f", "exit 4"); err != nil || r.Code != 4 {
				t.Errorf("after containerd's return an exec ended with %d, %v", r.Code, err)
			}
			info, err := h.Client().RuntimeInfo(ctx, path, &runcoptions.Options{BinaryName: calls.path})
			if err != nil || info.Features == nil {
				t.Errorf("-info: %+v, %v", info, err)
			}
			harness.Check(t, c.Remove(ctx))
			if _, err := h.Events.Expect(limit, name, "create", "start", "exec-added e", "exec-started e", "exit e",
				"exec-added f", "exec-started f", "exit f", "exit", "delete"); err != nil {
				t.Error(err)
			}
		})
	}
}
