//go:build crashpoints

package crash

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Here ends the process with SIGKILL if the point is armed and has not fired
// yet. PERDURE_CRASH_DIR is a directory: its file "armed" lists the armed
// points, one a line, and a point that fires leaves a file of its name, so that
// the next worker passes it and a test can prove that it was reached.
func Here(operation, exec string, position Position) {
	if exec != "" {
		operation = "exec-" + operation
	}
	point := operation + "." + string(position)
	dir := os.Getenv("PERDURE_CRASH_DIR")
	armed, _ := os.ReadFile(filepath.Join(dir, "armed"))
	if slices.Contains(strings.Fields(string(armed)), point) && fire(dir, point) {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way; run no further instruction of the caller
	}
}

// fire claims a point: true for the first caller of all workers.
func fire(dir, point string) bool {
	mark, err := os.OpenFile(filepath.Join(dir, point), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_ = mark.Close()
	return true
}
