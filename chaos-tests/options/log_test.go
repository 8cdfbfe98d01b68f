package options

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runtimeoptions/v1"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// awaitLine waits for a line of the worker's with all the words.
func awaitLine(t *testing.T, path string, words ...string) {
	t.Helper()
	harness.Check(t, wait.Until(context.Background(), limit, fmt.Sprintf("%q in %s", words, path), func() error {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
	lines:
		for line := range strings.Lines(string(text)) {
			for _, word := range words {
				if !strings.Contains(line, word) {
					continue lines
				}
			}
			return nil
		}
		return fmt.Errorf("it has %d bytes", len(text))
	}))
}

// TestLog: the lines about every container of the pod are in the file that one of
// them has named, and go on with the next worker, until that container is gone.
func TestLog(t *testing.T) {
	harness.NeedsPerdure(t)
	path := filepath.Join(t.TempDir(), "worker.log")
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	harness.Check(t, os.WriteFile(path, []byte("what was there\n"), 0o600))
	pod, err := h.Run(ctx, "pod", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	loud, err := h.Run(ctx, "loud", harness.Config{Args: harness.Sleep(), Pod: "pod", Options: &runtimeoptions.Options{
		ConfigBody: fmt.Appendf(nil, "log_path = %q\nlog_level = 'debug'\n", path),
	}})
	harness.Check(t, err)
	_, err = pod.Sh(ctx, "e1", "exit 0")
	harness.Check(t, err)
	awaitLine(t, path, "what was there")
	awaitLine(t, path, "level=debug", "container=loud", "create: done")
	awaitLine(t, path, "level=debug", "container=pod", "exec=e1", "start: done")
	_, err = pod.KillWorker(ctx)
	harness.Check(t, err)
	_, err = pod.Sh(ctx, "e2", "exit 0")
	harness.Check(t, err)
	awaitLine(t, path, "container=pod", "exec=e2", "start: done")
	harness.Check(t, loud.Remove(ctx))
	_, err = pod.Sh(ctx, "e3", "exit 0")
	harness.Check(t, err)
	harness.Check(t, pod.Remove(ctx))
	awaitLine(t, h.Log(), "container=pod", "exec=e3", "start: done")
	if text, err := os.ReadFile(path); err != nil || strings.Contains(string(text), "e3") {
		t.Errorf("lines go to the file after its container is gone: %v", err)
	}
}
