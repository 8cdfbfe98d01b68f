package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/wait"
	"perdure/internal/crash"
)

// Crashes ends, holds and fails the shim's processes at the crash points of
// perdure's package internal/crash, whose armed.go says how.
type Crashes struct{ dir string }

// NewWithCrashes starts a daemon whose shims run the keeper and the worker that
// have the crash points compiled in; `make integration` builds them.
func NewWithCrashes(t testing.TB, env ...string) (*Harness, *Crashes) {
	t.Helper()
	NeedsPerdure(t)
	bin, err := daemon.Bin()
	Check(t, err)
	peers, err := daemon.Peers()
	Check(t, err)
	worker := filepath.Join(bin, "test", "perdure-crashpoints")
	keepers := filepath.Join(bin, "test", "crashpoints")
	for _, path := range []string{worker, filepath.Join(keepers, "containerd-shim-perdure-v2")} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: make integration builds it", err)
		}
	}
	c := &Crashes{t.TempDir()}
	path := strings.Join([]string{keepers, bin, peers, os.Getenv("PATH")}, ":")
	return New(t, append([]string{"PATH=" + path, "PERDURE_WORKER=" + worker, "PERDURE_CRASH_DIR=" + c.dir}, env...)...), c
}

// Group returns the crash points of one group of containers (a pod, or a
// container of its own) alone. Asked for before the group's shim is started.
func (c *Crashes) Group(group string) (*Crashes, error) {
	dir := filepath.Join(c.dir, group)
	return &Crashes{dir}, os.MkdirAll(dir, 0o700)
}

func (c *Crashes) path(name string) string { return filepath.Join(c.dir, name) }

// Arm has the given points fire once more, and all others not at all. Each is
// a line as crash.Parse reads it: a point's name alone has the process killed.
// What follows a line crash.Then is armed once all before it have fired.
func (c *Crashes) Arm(points ...string) error {
	var armed []crash.Arming
	var lines strings.Builder
	for _, line := range points {
		if line != crash.Then {
			a, err := known(line)
			if err != nil {
				return err
			}
			armed, line = append(armed, a), a.String()
		}
		lines.WriteString(line + "\n")
	}
	if err := c.write(""); err != nil { // nothing is passed while the marks are removed
		return err
	}
	for _, a := range armed {
		marks, err := filepath.Glob(c.path(a.Point + ".passed*"))
		for _, path := range append(marks, c.path(a.Point), c.path(a.Point+".hold")) {
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err == nil && a.Action == crash.Hold {
			err = unix.Mkfifo(c.path(a.Point+".hold"), 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return c.write(lines.String())
}

// known reads a line and refuses what could never fire.
func known(line string) (crash.Arming, error) {
	a, err := crash.Parse(line)
	if err != nil {
		return a, err
	}
	i := slices.IndexFunc(crash.Points(), func(p crash.Point) bool { return p.Name == a.Point })
	switch {
	case i < 0:
		return a, fmt.Errorf("there is no crash point %s", a.Point)
	case a.Action == crash.Error && !crash.Points()[i].Fails:
		return a, fmt.Errorf("crash point %s cannot report an error", a.Point)
	}
	return a, nil
}

func (c *Crashes) write(armed string) error {
	if err := os.WriteFile(c.path("armed.next"), []byte(armed), 0o600); err != nil {
		return err
	}
	return os.Rename(c.path("armed.next"), c.path("armed"))
}

// firedLimit is how long a worker may take from a client's answer to a point that comes after it.
const firedLimit = 10 * time.Second

// Fired waits for the point to have fired; it is an error if that has not happened since it was armed. A client may have
// its answer before the worker has come to the point.
func (c *Crashes) Fired(point string) error { return c.Await(context.Background(), point, 1) }

// Await waits until the point has fired so many times since it was armed.
func (c *Crashes) Await(ctx context.Context, point string, times int) error {
	return wait.Until(ctx, firedLimit, "crash point "+point, func() error {
		if n := c.Times(point); n < times {
			return fmt.Errorf("it has fired %d times, not %d", n, times)
		}
		return nil
	})
}

// Times is how often the point has fired since it was armed.
func (c *Crashes) Times(point string) int {
	text, _ := os.ReadFile(c.path(point)) // none: never
	return strings.Count(string(text), "\n")
}

// Release lets the process go on that a point holds (action "hold"; Await says
// that one is there). An error means that none is.
func (c *Crashes) Release(ctx context.Context, point string) error {
	return wait.Until(ctx, firedLimit, "a process at crash point "+point, func() error {
		fd, err := unix.Open(c.path(point+".hold"), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err // ENXIO: none has the fifo open
		}
		return unix.Close(fd)
	})
}

// Trace begins to write down what is passed, whatever is armed.
func (c *Crashes) Trace() error { return os.WriteFile(c.path("trace"), nil, 0o600) }

// Note adds a line of the test's own to the trace.
func (c *Crashes) Note(line string) error {
	f, err := os.OpenFile(c.path("trace"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// Traced returns the lines of the trace: "<pid> <point>" and the test's own.
func (c *Crashes) Traced() ([]string, error) {
	text, err := os.ReadFile(c.path("trace"))
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}
