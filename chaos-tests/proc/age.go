package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ticks is the kernel's USER_HZ: 100 for every program of Linux.
const ticks = 100

// StartTime returns when process pid was started, in ticks since the machine's boot: with the pid it says which process it is.
func StartTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, gone(err)
	}
	const starttime = 22 - 3 // proc_pid_stat(5), after pid and name
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) <= starttime {
		return 0, fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	start, err := strconv.ParseUint(fields[starttime], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("start time of process %d: %w", pid, err)
	}
	return start, nil
}

// Age returns for how long process pid has been alive, to a hundredth of a
// second.
func Age(pid int) (time.Duration, error) {
	start, err := StartTime(pid)
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()) - time.Duration(start)*time.Second/ticks, nil
}
