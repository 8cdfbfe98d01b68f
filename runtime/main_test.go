package runtime

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain is also where the copies of the test binary begin that stand in for workers
// and processes. It makes the test what the keeper is: the subreaper of container processes.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roles[role]())
	}
	if len(os.Args) > 2 && os.Args[1] == loggerArg {
		os.Exit(loggerRole(os.Args[2:]))
	}
	os.Exit(m.Run())
}
