package options

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
)

// TestDeleteWithoutTheJournal: keeper and worker are dead, and the journal is of no
// use. containerd's `delete` ends the container all the same, with the runtime and
// the root that were chosen for it, soon, and tells what it has done.
func TestDeleteWithoutTheJournal(t *testing.T) {
	harness.NeedsPerdure(t)
	calls := newRecorder(t)
	root := t.TempDir()
	h := harness.New(t)
	for name, spoil := range map[string]func(t *testing.T, journal string){
		"locked": func(t *testing.T, journal string) {
			f, err := os.OpenFile(journal, os.O_RDWR, 0)
			harness.Check(t, err)
			t.Cleanup(func() { f.Close() })
			harness.Check(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
		},
		"damaged": func(t *testing.T, journal string) {
			harness.Check(t, os.WriteFile(journal, []byte("no journal"), 0o600))
		},
		"empty": func(t *testing.T, journal string) { harness.Check(t, os.Truncate(journal, 0)) },
		"gone":  func(t *testing.T, journal string) { harness.Check(t, os.Remove(journal)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			c, err := h.Run(ctx, name, harness.Config{Args: harness.Sleep(), Options: &runcoptions.Options{BinaryName: calls.path, Root: root}})
			harness.Check(t, err)
			init := int(c.Task.Pid())
			endShim(t, h, c)
			spoil(t, filepath.Join(h.Bundle(h.Namespace, name), "perdure.db"))
			harness.Check(t, os.WriteFile(calls.log, nil, 0o600))

			began := time.Now()
			answer := runDelete(ctx, t, h, name)
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %v, of which containerd allows 5 s", took)
			}
			if answer.ExitStatus != 137 || int(answer.Pid) != init || time.Since(answer.ExitedAt.AsTime()) > limit {
				t.Errorf("the answer is %v, want 137 of process %d, just now", answer, init)
			}
			harness.Check(t, harness.AwaitEnd(ctx, init))
			calls.call(t, "delete")
			if left, err := os.ReadDir(filepath.Join(root, h.Namespace)); err != nil || len(left) > 0 {
				t.Errorf("the runtime's root still holds %v (%v)", left, err)
			}

			harness.Check(t, h.Start(ctx)) // deletes it a second time
			loaded, err := h.Client().LoadContainer(ctx, name)
			harness.Check(t, err)
			if _, err := loaded.Task(ctx, nil); !errdefs.IsNotFound(err) {
				t.Errorf("containerd has a task: %v", err)
			}
			c.Container, c.Task = loaded, nil
			harness.Check(t, c.Remove(ctx))
		})
	}
}

// runDelete calls the shim as containerd does.
func runDelete(ctx context.Context, t *testing.T, h *harness.Harness, id string) *api.DeleteResponse {
	t.Helper()
	bin, err := daemon.Bin()
	harness.Check(t, err)
	bundle := h.Bundle(h.Namespace, id)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "containerd-shim-perdure-v2"), "-namespace", h.Namespace, "-address", h.Address(),
		"-publish-binary", "/no/such/containerd", "-id", id, "-bundle", bundle, "delete")
	cmd.Dir = bundle
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	t.Logf("stderr: %s", &stderr)
	harness.Check(t, err)
	answer := &api.DeleteResponse{}
	harness.Check(t, proto.Unmarshal(out, answer))
	return answer
}

// endShim stops containerd, and kills the keeper and then its worker.
func endShim(t *testing.T, h *harness.Harness, c *harness.Container) {
	t.Helper()
	ctx := h.Within(t, limit)
	keeper, err := c.Keeper()
	harness.Check(t, err)
	worker, err := c.Worker(ctx)
	harness.Check(t, err)
	harness.Check(t, h.Stop(ctx))
	harness.Check(t, proc.Kill(ctx, keeper, c.Shim().IsServer))
	harness.Check(t, harness.AwaitEnd(ctx, worker)) // it leaves when the keeper's channel ends
}
