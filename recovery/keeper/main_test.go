package keeper_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper"
)

// The test binary is three programs: the tests, a keeper (argv[1] "keeper", the
// limits as JSON in the environment) and a worker (argv[1] "worker", which is
// how a keeper calls it).
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			os.Exit(workerMain())
		case "keeper":
			os.Exit(keeperMain())
		}
	}
	// Orphans of a killed keeper come here, where the tests end them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func keeperMain() int {
	unix.CloseOnExec(3)
	self, err := os.Executable()
	if err != nil {
		return 1
	}
	config := keeper.Config{
		Listener: 3, Log: 2, Worker: self, Env: os.Environ(),
		Version: "test", Namespace: "ns", Group: "group", Limits: keeper.DefaultLimits(),
	}
	if err := json.Unmarshal([]byte(os.Getenv("TEST_LIMITS")), &config.Limits); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := keeper.Run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
