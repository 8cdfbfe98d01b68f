package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"perdure/task/options"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLogLevelIsTheMostVerboseOne(t *testing.T) {
	for _, c := range []struct {
		debug  bool
		levels []string
		want   string
	}{
		{false, nil, "info"}, {true, nil, "debug"}, {false, []string{""}, "info"}, {false, []string{"error"}, "error"},
		{false, []string{"error", "", "trace"}, "trace"}, {true, []string{"error"}, "debug"}, {true, []string{"trace"}, "trace"}, {false, []string{"panic"}, "panic"},
	} {
		w := newWorkerLog(c.debug)
		for i, level := range c.levels {
			w.Follow(fmt.Sprint(i), options.Options{LogLevel: level})
		}
		if got := log.GetLevel().String(); got != c.want && !(c.want == "warn" && got == "warning") {
			t.Errorf("debug %v, %q: %s, want %s", c.debug, c.levels, got, c.want)
		}
		for i := range c.levels {
			w.Leave(fmt.Sprint(i))
		}
		if want := map[bool]string{false: "info", true: "debug"}[c.debug]; log.GetLevel().String() != want {
			t.Errorf("after all have left: %s, want %s", log.GetLevel(), want)
		}
	}
}

func TestLogFiles(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	must(t, os.WriteFile(one, []byte("before\n"), 0o600))
	w := newWorkerLog(false)
	w.Follow("a", options.Options{LogPath: one})
	w.Follow("b", options.Options{LogPath: one})
	w.Follow("c", options.Options{LogPath: two})
	log.L.Warn("first")
	w.flush()
	must(t, os.Rename(one, one+".1")) // rotated
	w.Leave("b")
	w.Leave("c")
	log.L.Info("second")
	w.flush()
	w.Leave("a")
	log.L.Info("third")
	w.flush()
	for path, want := range map[string][]string{one + ".1": {"before", "first"}, one: {"second"}, two: {"first"}} {
		text, err := os.ReadFile(path)
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if err != nil || len(lines) != len(want) {
			t.Errorf("%s: %q, %v; want %q", path, text, err, want)
			continue
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s: %q, want %q", path, lines[i], want[i])
			}
		}
	}
}

// TestLogNeverWaits: a file that has become a fifo without a reader, or is gone
// with its directory, holds up nothing.
func TestLogNeverWaits(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	must(t, os.Mkdir(dir, 0o700))
	path := filepath.Join(dir, "log")
	w := newWorkerLog(false)
	must(t, w.Check(options.Options{LogPath: path}))
	w.Follow("a", options.Options{LogPath: path})
	must(t, unix.Mkfifo(path, 0o600))
	log.L.Info("into the fifo")
	w.flush()
	must(t, os.RemoveAll(dir))
	log.L.Info("into nothing")
	w.flush()
	must(t, os.Mkdir(dir, 0o700))
	log.L.Info("there again")
	w.flush()
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), "there again") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSlowFileLosesLines: what a file does not take in time is counted.
func TestSlowFileLosesLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f := fileLog{backlog: make(chan backlogged, 2)} // nobody writes
	for range 5 {
		f.write([]byte("line\n"), []string{path})
	}
	f.flush(time.Millisecond) // gives up
	go run(f.backlog)
	f.flush(time.Minute)
	f.write([]byte("last\n"), []string{path})
	f.flush(time.Minute)
	if text, err := os.ReadFile(path); err != nil || string(text) != "line\nline\n3 lines are lost: the file was too slow\nlast\n" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestUnusableLogPaths(t *testing.T) {
	dir := t.TempDir()
	fifo, link, file := filepath.Join(dir, "fifo"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	must(t, unix.Mkfifo(fifo, 0o600))
	must(t, os.Symlink("/no/such/file", link))
	must(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{
		fifo: "regular", "/dev/null": "regular", dir: "regular", link: "link", filepath.Join(file, "x"): "not a directory",
		filepath.Join(dir, "none", "x"): "make the directory", "/proc/perdure.log": "no file can be made",
	} {
		err := (&workerLog{}).Check(options.Options{LogPath: path})
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	for _, path := range []string{file, filepath.Join(dir, "new"), ""} {
		must(t, (&workerLog{}).Check(options.Options{LogPath: path}))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("looking has left %v, %v", left, err)
	}
}
