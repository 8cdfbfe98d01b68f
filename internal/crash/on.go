//go:build crashpoints

package crash

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	trace(dir, point)
	fires, ok := firing(dir, point)
	if !ok {
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

// trace says that a point is passed, where a test wants to know.
func trace(dir, point string) {
	path := filepath.Join(dir, "trace")
	if _, err := os.Stat(path); err == nil {
		appended(path, fmt.Sprintln(os.Getpid(), point))
	}
}

// firing counts a passage of an armed point and finds what is to happen at it,
// of which it leaves the mark.
func firing(dir, point string) (Arming, bool) {
	text, _ := os.ReadFile(filepath.Join(dir, "armed"))
	for i, stage := range strings.Split(string(text), Then+"\n") {
		suffix := ""
		if i > 0 {
			suffix = fmt.Sprint(".", i+1)
		}
		var here []Arming
		over := true
		for line := range strings.Lines(stage) {
			armed, err := Parse(line)
			if err != nil {
				continue
			}
			over = over && fired(dir, armed, suffix)
			if armed.Point == point {
				here = append(here, armed)
			}
		}
		if over {
			continue
		}
		return fires(dir, point, suffix, here)
	}
	return Arming{}, false
}

// fired reports whether a line's mark is there.
func fired(dir string, a Arming, suffix string) bool {
	marks, _ := os.ReadFile(filepath.Join(dir, a.Point))
	return slices.Contains(strings.Split(string(marks), "\n"), a.String()+suffix)
}

// fires counts the passage and finds the one of the point's lines that it is of.
func fires(dir, point, suffix string, armed []Arming) (Arming, bool) {
	if len(armed) == 0 {
		return Arming{}, false
	}
	passage := appended(filepath.Join(dir, point+".passed"+suffix), "+")
	for _, a := range armed {
		if int64(a.Count) == passage && appended(filepath.Join(dir, point), a.String()+suffix+"\n") > 0 {
			return a, true
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
