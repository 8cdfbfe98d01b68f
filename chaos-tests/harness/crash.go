package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/wait"
)

// Crashes ends workers with SIGKILL at the crash points of perdure's package
// internal/crash, each once for every time it is armed.
type Crashes struct{ dir string }

// NewWithCrashes starts a daemon whose shims run the worker that has the crash
// points compiled in; `make integration` builds it.
func NewWithCrashes(t testing.TB) (*Harness, *Crashes) {
	t.Helper()
	NeedsPerdure(t)
	bin, err := daemon.Bin()
	Check(t, err)
	worker := filepath.Join(bin, "test", "perdure-crashpoints")
	if _, err := os.Stat(worker); err != nil {
		t.Fatalf("%v: make integration builds it", err)
	}
	c := &Crashes{t.TempDir()}
	return New(t, "PERDURE_WORKER="+worker, "PERDURE_CRASH_DIR="+c.dir), c
}

// Arm has the given points fire once more, and all others not at all.
func (c *Crashes) Arm(points ...string) error {
	for _, point := range points {
		if err := os.Remove(filepath.Join(c.dir, point)); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	next := filepath.Join(c.dir, "armed.next")
	if err := os.WriteFile(next, []byte(strings.Join(points, "\n")), 0o600); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(c.dir, "armed"))
}

// firedLimit is how long a worker may take from a client's answer to a point that comes after it.
const firedLimit = 10 * time.Second

// Fired waits for the point to end a worker; it is an error if that has not happened since it was armed. A client may have
// its answer before the worker has come to the point.
func (c *Crashes) Fired(point string) error {
	return wait.Until(context.Background(), firedLimit, "crash point "+point, func() error {
		_, err := os.Stat(filepath.Join(c.dir, point))
		return err
	})
}
