//go:build crashpoints

package crash

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Enabled says that this build has crash points.
const Enabled = true

// directory is what Scope has found; empty until then.
var directory string

// Scope has the process use the points that are armed for its group, where
// there are any. Called once, before the process has other goroutines.
func Scope(group string) {
	dir := filepath.Join(os.Getenv("PERDURE_CRASH_DIR"), group)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		directory = dir
	}
}

// Here ends or holds the process if the point is armed so, at this passage.
func Here(operation, exec string, position Position) {
	_ = pass(name(operation, exec, position))
}

// Fail is Here at a step that can fail: the error is what a point that is armed
// with Error has the step report.
func Fail(operation, exec string, position Position) error {
	return pass(name(operation, exec, position))
}

func pass(point string) error {
	if Hook != nil {
		return Hook(point)
	}
	dir := directory
	if dir == "" {
		dir = os.Getenv("PERDURE_CRASH_DIR")
	}
	if dir == "" {
		return nil
	}
	fires, ok := firing(dir, point)
	if !ok || appended(filepath.Join(dir, point), fmt.Sprintln(fires.Action, fires.Count)) == 0 {
		return nil
	}
	switch fires.Action {
	case Kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; run no further instruction of the caller
	case Hold:
		hold(filepath.Join(dir, point+".hold"))
	case Error:
		return fmt.Errorf("crash point %s: an error, as armed", point)
	}
	return nil
}

// firing counts a passage of an armed point and finds what is to happen at it.
func firing(dir, point string) (Arming, bool) {
	text, _ := os.ReadFile(filepath.Join(dir, "armed"))
	var passage int64
	for line := range strings.Lines(string(text)) {
		armed, err := Parse(line)
		if err != nil || armed.Point != point {
			continue
		}
		if passage == 0 {
			passage = appended(filepath.Join(dir, point+".passed"), "+")
		}
		if int64(armed.Count) == passage {
			return armed, true
		}
	}
	return Arming{}, false
}

// appended adds to a file and returns where this addition ends, which is
// another number for each of those who add at the same time; 0 if it cannot.
func appended(path, text string) int64 {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		return 0
	}
	end, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0
	}
	return end
}

// hold waits until a writer of the fifo has come and gone.
func hold(path string) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	for err == syscall.EINTR {
		fd, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	}
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	for {
		n, err := syscall.Read(fd, make([]byte, 16))
		if err != syscall.EINTR && n <= 0 {
			return
		}
	}
}
