package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/client"
	"perdure/task/options"
)

// workerLog is the worker's own log: lines go to containerd, through the bundle's
// fifo, and to the files that the containers of the group have named. The level is
// the most verbose one that -debug or any container asks for, info where none
// does. Containers are followed again as they are adopted, so a later worker has
// the same.
//
// A line never waits, for a reader or for a disk.
type workerLog struct {
	debug bool
	files fileLog

	mu     sync.Mutex
	wishes map[string]options.Options // by container
	paths  []string                   // replaced, never changed
}

// newWorkerLog makes the log that this process writes from now on.
func newWorkerLog(debug bool) *workerLog {
	w := &workerLog{debug: debug, wishes: map[string]options.Options{}}
	_ = log.SetFormat(log.TextFormat)
	log.L.Logger.SetOutput(w)
	log.L = log.L.WithField("runtime", runtimeName)
	w.apply()
	return w
}

// Check tells why a file cannot be written to. It leaves nothing: the file is made
// with the first line.
func (*workerLog) Check(o options.Options) error {
	if o.LogPath == "" {
		return nil
	}
	if err := writable(o.LogPath); err != nil {
		return fmt.Errorf("log_path %s cannot be used: %w", o.LogPath, err)
	}
	return nil
}

func writable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err == nil && !st.Mode().IsRegular():
		return errors.New("it is not a regular file")
	case err == nil:
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		return f.Close()
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return errors.New("it is a link to nothing")
	}
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return fmt.Errorf("make the directory %s first (%v)", dir, err)
	}
	// A file without a name: one with a name would stay if this process were killed.
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	switch {
	case err == nil:
		return unix.Close(fd)
	case !errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("no file can be made: %w", err)
	}
	trial, err := os.CreateTemp(dir, ".perdure-log-*") // NFS and others have no such files
	if err != nil {
		return fmt.Errorf("no file can be made: %w", err)
	}
	return errors.Join(trial.Close(), os.Remove(trial.Name()))
}

// Follow adds a container's wishes.
func (w *workerLog) Follow(key string, o options.Options) {
	if o.LogLevel == "" && o.LogPath == "" {
		return
	}
	w.mu.Lock()
	w.wishes[key] = o
	w.mu.Unlock()
	w.apply()
}

// Leave takes a container's wishes out.
func (w *workerLog) Leave(key string) {
	w.mu.Lock()
	_, had := w.wishes[key]
	delete(w.wishes, key)
	w.mu.Unlock()
	if had {
		w.apply()
	}
}

func (w *workerLog) apply() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paths = nil
	level := len(options.Levels)
	if w.debug {
		level = slices.Index(options.Levels, "debug")
	}
	for _, o := range w.wishes {
		if o.LogPath != "" && !slices.Contains(w.paths, o.LogPath) {
			w.paths = append(w.paths, o.LogPath)
		}
		if i := slices.Index(options.Levels, o.LogLevel); i >= 0 {
			level = min(level, i)
		}
	}
	if level == len(options.Levels) {
		level = slices.Index(options.Levels, "info")
	}
	_ = log.SetLevel(options.Levels[level])
}

// Write takes one line from the logger.
func (w *workerLog) Write(line []byte) (int, error) {
	_, _ = client.Stderr{}.Write(line)
	w.mu.Lock()
	paths := w.paths
	w.mu.Unlock()
	if len(paths) > 0 {
		w.files.write(bytes.Clone(line), paths)
	}
	return len(line), nil
}

// flush gives what is not written yet a moment, before the worker ends.
func (w *workerLog) flush() { w.files.flush(200 * time.Millisecond) }
