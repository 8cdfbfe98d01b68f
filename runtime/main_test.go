package runtime

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain makes the test what the keeper is: the subreaper of container processes.
func TestMain(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
