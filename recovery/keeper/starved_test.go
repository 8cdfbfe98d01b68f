package keeper

import (
	"os"
	"testing"
	"time"
)

// TestLongestWait: a worker is starved by what its most unlucky thread has waited, not by the sum of all.
func TestLongestWait(t *testing.T) {
	before := map[string]uint64{"1": 5, "2": 1_000_000}
	after := map[string]uint64{"1": 700_000_005, "2": 301_000_000, "3": 200_000_000}
	if got := longest(before, after); got != 700*time.Millisecond {
		t.Errorf("longest wait %v, want 700ms", got)
	}
	if got := longest(after, after); got != 0 {
		t.Errorf("longest wait between equal looks %v", got)
	}
	if got := longest(after, nil); got != 0 {
		t.Errorf("longest wait of a process that is gone %v", got)
	}
}

func TestWaitedReadsEveryThread(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the kernel has no schedstat: workers are not excused there")
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	if got := waited(os.Getpid()); len(got) < len(threads) {
		t.Errorf("%d of %d threads were read", len(got), len(threads))
	}
}
