// Package stdio holds the tests of where a process's output can go besides a
// fifo: files, loggers, nothing, and terminals through each; and of what then
// survives the death of workers and of loggers. Those that kill nothing pass
// with the stock shim as well, but where they say why not.
package stdio

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// limit bounds every single wait of these tests. Most last milliseconds.
const limit = 30 * time.Second

// TestMain is also where copies of the test binary begin that are loggers.
func TestMain(m *testing.M) {
	if len(os.Args) > 4 && os.Args[1] == loggerKey {
		os.Exit(logger(os.Args[2], os.Args[4]))
	}
	os.Exit(m.Run())
}

func start(t *testing.T, env ...string) (*harness.Harness, context.Context) {
	t.Helper()
	h := harness.New(t, env...)
	return h, h.Within(t, 5*time.Minute)
}

func run(ctx context.Context, t *testing.T, h *harness.Harness, id string, cfg harness.Config) *harness.Container {
	t.Helper()
	c, err := h.Run(ctx, id, cfg)
	harness.Check(t, err)
	return c
}

// end waits for a container's init, compares its status and deletes the task.
func end(ctx context.Context, t *testing.T, c *harness.Container, code uint32) {
	t.Helper()
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != code {
		t.Errorf("%s ended with %d, want %d", c.ID, exit.Code, code)
	}
	harness.Check(t, c.DeleteTask(ctx))
}

// uri is stdio of a scheme, path and query, with a terminal or without.
func uri(scheme, path, query string, terminal bool) cio.Creator {
	u := &url.URL{Scheme: scheme, Path: path, RawQuery: query}
	if terminal {
		return cio.TerminalLogURI(u)
	}
	return cio.LogURI(u)
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// await waits until a file has a text in it.
func await(ctx context.Context, t *testing.T, path, text string) {
	t.Helper()
	harness.Check(t, wait.Until(ctx, limit, fmt.Sprintf("%q in %s", text, path), func() error {
		if got := content(t, path); !strings.Contains(got, text) {
			return fmt.Errorf("it has %d bytes: %.200q", len(got), got)
		}
		return nil
	}))
}

// awaitSize waits until a file has so many bytes, or more.
func awaitSize(ctx context.Context, t *testing.T, path string, size int64) {
	t.Helper()
	harness.Check(t, wait.Until(ctx, limit, fmt.Sprintf("%d bytes in %s", size, path), func() error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Size() < size {
			return fmt.Errorf("it has %d", info.Size())
		}
		return nil
	}))
}

// bytes makes a file of random bytes and returns how a container gets at it.
func bytes(t *testing.T, dir string, size int64) (path string, mount specs.Mount) {
	t.Helper()
	path = filepath.Join(dir, "input")
	f, err := os.Create(path)
	harness.Check(t, err)
	var seed [32]byte
	seed[0] = byte(harness.Seed(t))
	_, err = io.CopyN(f, rand.NewChaCha8(seed), size)
	harness.Check(t, errors.Join(err, f.Close()))
	return path, specs.Mount{Type: "bind", Source: path, Destination: "/input", Options: []string{"bind", "ro"}}
}

// same compares two files byte for byte.
func same(t *testing.T, got, want string) {
	t.Helper()
	sum := func(path string) string {
		f, err := os.Open(path)
		harness.Check(t, err)
		defer f.Close()
		h := sha256.New()
		n, err := io.Copy(h, f)
		harness.Check(t, err)
		return fmt.Sprintf("%d bytes, %x", n, h.Sum(nil))
	}
	if g, w := sum(got), sum(want); g != w {
		t.Errorf("the output is %s, it should be %s", g, w)
	}
}

// killAlong kills the container's worker each time that a file has grown by step.
func killAlong(ctx context.Context, t *testing.T, c *harness.Container, path string, step, size int64) {
	t.Helper()
	kills := 0
	for at := step; at < size; at += step {
		awaitSize(ctx, t, path, at)
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
		_, err = c.Task.Status(ctx) // nobody waits for long for a worker that is owed no answer
		harness.Check(t, err)
		kills++
	}
	t.Logf("measured: %d kills in the middle of %d MiB", kills, size>>20)
}

// pids lists the loggers that were started in a directory.
func pids(t *testing.T, dir string) []int {
	t.Helper()
	var all []int
	for word := range strings.FieldsSeq(content(t, filepath.Join(dir, "loggers"))) {
		var pid int
		_, err := fmt.Sscan(word, &pid)
		harness.Check(t, err)
		all = append(all, pid)
	}
	return all
}

func mounts(m ...specs.Mount) []specs.Mount { return m }
