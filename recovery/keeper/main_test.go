package keeper_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper"
)

// The test binary is five programs: the tests, a keeper (argv[1] "keeper", the
// limits as JSON in the environment), a worker (argv[1] "worker", which is how a
// keeper calls it), a spawner of many small processes, and a client of another user.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			os.Exit(workerMain())
		case "peer":
			os.Exit(peerMain(os.Args[2]))
		case "spawner":
			os.Exit(spawnerMain(os.Args[2:]))
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

// spawnerMain forks n children, which exit with a status once the fifo at path
// ends, and leaves them behind. They do not exec: thousands of them cost little.
func spawnerMain(args []string) int {
	n, _ := strconv.Atoi(args[1])
	status, _ := strconv.Atoi(args[2])
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 1
	}
	runtime.LockOSThread()
	for range n {
		pid, _, errno := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			return 1
		}
		if pid == 0 {
			var b byte
			for {
				_, _, errno = syscall.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1)
				if errno != syscall.EINTR {
					syscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
				}
			}
		}
	}
	return 0
}
