// Package harness runs tests against a real containerd with a real runc. Every
// test has a daemon and a containerd namespace of its own; in the test's
// clean-up everything is removed through containerd, and then a checker looks
// for anything left behind.
//
// Functions return errors instead of ending the test, so that load can be made
// from many goroutines.
package harness

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/wait"
)

// Harness is the daemon, namespace and event record of one test.
type Harness struct {
	*daemon.Daemon
	Namespace string
	Events    *Recorder

	// Serving, if it is set, takes the place of Events at every further start of the daemon (see daemon.Options).
	Serving func(context.Context, *client.Client) error

	t           testing.TB
	snapshotter string
	watcher     *stallWatcher

	mu         sync.Mutex
	containers map[string]*Container // by id, until removed
}

// Stock is the runtime that perdure is measured against.
const Stock = "io.containerd.runc.v2"

// noRest keeps workers from leaving while they have nothing to do, which the
// tests that kill them would race with. Package rest is about that.
const noRest = "PERDURE_IDLE_MS=3600000"

// New starts a daemon for one test, with the test image imported. The variables
// in env reach its shims.
func New(t testing.TB, env ...string) *Harness {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: containers cannot be run without")
	}
	h := &Harness{t: t, Namespace: uniqueName(t), Events: newRecorder(), containers: map[string]*Container{}}
	d, err := daemon.New(daemon.Options{LogLevel: "debug", Env: append([]string{noRest}, env...), Serving: h.serving})
	if err != nil {
		t.Fatal(err)
	}
	h.Daemon = d
	t.Cleanup(h.cleanUp)
	if err := h.Start(h.Context()); err != nil {
		t.Fatal(err)
	}
	h.watcher = watchForStalls(h)
	if err := h.importImage(); err != nil {
		t.Fatal(err)
	}
	return h
}

// Snapshotter is the name of the one that is used here.
func (h *Harness) Snapshotter() string { return h.snapshotter }

func uniqueName(t testing.TB) string {
	var b [4]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	return "pd-" + hex.EncodeToString(b[:])
}

// Context carries the test's namespace. Calls are bounded by the caller.
func (h *Harness) Context() context.Context {
	return namespaces.WithNamespace(context.Background(), h.Namespace)
}

func (h *Harness) serving(ctx context.Context, c *client.Client) error {
	if h.Serving != nil {
		return h.Serving(ctx, c)
	}
	return h.Events.subscribe(h.Context(), c, h.Namespace)
}

// NeedsPerdure skips a test of what only perdure does.
func NeedsPerdure(t testing.TB) {
	t.Helper()
	if daemon.Runtime() == Stock {
		t.Skip("runtime " + Stock + " has no worker: this test is about perdure's")
	}
}

// Eventually fails the test unless cond is met within limit.
func Eventually(t testing.TB, limit time.Duration, what string, cond func() error) {
	t.Helper()
	if err := wait.Until(context.Background(), limit, what, cond); err != nil {
		t.Fatal(err)
	}
}

func (h *Harness) importImage() error {
	ctx := h.Context()
	var archive bytes.Buffer
	if err := daemon.WriteImage(&archive); err != nil {
		return err
	}
	if _, err := h.Client().Import(ctx, &archive); err != nil {
		return fmt.Errorf("import the test image: %w", err)
	}
	h.snapshotter = snapshotter(h.Dir())
	image, err := h.Client().GetImage(ctx, daemon.Image)
	if err != nil {
		return err
	}
	return image.Unpack(ctx, h.snapshotter)
}

// cleanUp removes everything of the test through containerd, and reports what
// is still there afterwards.
func (h *Harness) cleanUp() {
	ctx, cancel := context.WithTimeout(h.Context(), wait.Limit(2*time.Minute))
	defer cancel()
	if h.watcher != nil {
		h.watcher.stop()
	}
	if h.Pid() == 0 {
		if err := h.Start(ctx); err != nil {
			h.t.Errorf("clean-up: %v", err)
		}
	}
	if h.Client() != nil {
		h.removeAll(ctx)
		h.settle(ctx)
	}
	h.Events.close()
	if err := h.Stop(ctx); err != nil {
		h.t.Errorf("clean-up: %v", err)
	}
	h.checkLeftovers(ctx)
	if h.t.Failed() {
		h.printLog()
	}
	if err := h.Remove(); err != nil {
		h.t.Errorf("clean-up: %v", err)
	}
}

// settle waits until containerd has cleaned up after the shims that have left: it does so beside, with `delete`, where
// a test has deleted a task past it. What stays is reported by the check for leftovers.
func (h *Harness) settle(ctx context.Context) {
	_ = wait.Until(ctx, leftoverLimit, "containerd to have removed all bundles", func() error {
		if left := h.bundles(); len(left) > 0 {
			return fmt.Errorf("%d are left", len(left))
		}
		return nil
	})
}

// removeAll ends and deletes what the test still has.
func (h *Harness) removeAll(ctx context.Context) {
	h.mu.Lock()
	left := make([]*Container, 0, len(h.containers))
	for _, c := range h.containers {
		left = append(left, c)
	}
	h.mu.Unlock()
	for _, c := range left {
		if err := c.Remove(ctx); err != nil {
			h.t.Errorf("clean-up: %v", err)
		}
	}
}

// logTail is how much of containerd's log a failed test prints, in bytes.
const logTail = 8 << 10

func (h *Harness) printLog() {
	data, err := os.ReadFile(h.Log())
	if err != nil {
		h.t.Log(err)
		return
	}
	if len(data) > logTail {
		data = data[len(data)-logTail:]
	}
	h.t.Logf("the end of %s:\n%s", h.Log(), data)
	if keep := os.Getenv("PERDURE_KEEP_LOGS"); keep != "" {
		name := filepath.Join(keep, filepath.Base(h.t.Name())+"-"+h.Namespace+".log")
		h.t.Logf("the whole log: %s (%v)", name, os.Rename(h.Log(), name))
	}
}
