//go:build crashpoints

package crash

import (
	"os"
	"strings"
	"syscall"
)

// Here ends the process with SIGKILL if PERDURE_CRASH names this point and it
// has not fired yet. PERDURE_CRASH is a comma-separated list of points;
// PERDURE_CRASH_DIR is a directory in which a fired point leaves a file of its
// name, so that the next worker passes it and a test can prove it was reached.
func Here(operation string, position Position) {
	point := operation + "." + string(position)
	for _, armed := range strings.Split(os.Getenv("PERDURE_CRASH"), ",") {
		if armed == point && fire(point) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way; run no further instruction of the caller
		}
	}
}

// fire claims a point: true for the first caller of all workers.
func fire(point string) bool {
	mark, err := os.OpenFile(os.Getenv("PERDURE_CRASH_DIR")+"/"+point, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	_ = mark.Close()
	return true
}
