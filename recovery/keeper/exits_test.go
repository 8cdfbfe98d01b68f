package keeper_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// orphans makes the worker start n processes that become the keeper's children
// and end with the given status as soon as the returned gate is closed.
func (k *kept) orphans(n, status int) *os.File {
	k.t.Helper()
	path := filepath.Join(k.dir, "gate")
	must(k.t, unix.Mkfifo(path, 0o600))
	gate, err := os.OpenFile(path, os.O_RDWR, 0)
	must(k.t, err)
	k.t.Cleanup(func() { gate.Close() })
	// The spawner is reaped before the answer, so its children are the keeper's.
	k.ask(k.dial(), "Spawn", fmt.Sprintf("%s %d %d", path, n, status))
	return gate
}

func (k *kept) exit() event {
	k.t.Helper()
	return k.next("an exit", func(e event) bool { return e.Event == "exit" })
}

func TestExitsWhileNoWorkerLives(t *testing.T) {
	k := run(t, "normal+noack,crash+noack,normal", `{"Backoff":50000000}`)
	first := k.hello()
	gate := k.orphans(1, 7)
	var orphan int
	for _, pid := range children(t, k.pid) {
		if pid != first.PID {
			orphan = pid
		}
	}
	start, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", orphan))
	must(t, err)
	kill(t, first.PID)
	gate.Close()
	e := k.next("the exit, in the third life", func(e event) bool { return e.Event == "exit" && e.Life == 3 })
	if e.Exit.Pid != orphan || e.Exit.Status.ExitStatus() != 7 || e.Exit.At.IsZero() {
		t.Errorf("exit %+v, want pid %d with status 7", e.Exit, orphan)
	}
	if e.Exit.Start == 0 || !containsField(string(start), e.Exit.Start) {
		t.Errorf("start time %d is not in %q", e.Exit.Start, start)
	}
	// Acknowledged now: the fourth life must not hear of it.
	k.ask(k.dial(), "Echo", "x")
	kill(t, e.PID)
	fourth := k.hello()
	kill(t, fourth.PID)
	k.hello()
	for _, e := range k.seen {
		if e.Event == "exit" && e.Life > 3 {
			t.Errorf("acknowledged exit told again: %+v", e)
		}
	}
}

// A runtime that is stopped when its worker is killed goes on when it is continued: the kernel must not take it for one
// whose session is over.
func TestStoppedRuntimeOutlivesItsWorker(t *testing.T) {
	k := run(t, "normal,normal", "")
	first := k.hello()
	child, err := strconv.Atoi(k.ask(k.dial(), "Stopped", "kill -STOP $$; exit 7"))
	must(t, err)
	k.eventually("the process to stop", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return err == nil && strings.Contains(string(stat), ") T ")
	})
	kill(t, first.PID)
	k.hello()
	must(t, unix.Kill(child, unix.SIGCONT))
	if e := k.exit(); e.Exit.Pid != child || e.Exit.Status.ExitStatus() != 7 {
		t.Errorf("exit %+v, want pid %d with status 7", e.Exit, child)
	}
}

func containsField(stat string, start uint64) bool {
	var fields int
	var text string
	for rest := stat; len(rest) > 0; fields++ {
		if _, err := fmt.Sscan(rest, &text); err != nil {
			return false
		}
		if text == strconv.FormatUint(start, 10) {
			return true
		}
		rest = rest[len(text):]
		for len(rest) > 0 && rest[0] == ' ' {
			rest = rest[1:]
		}
	}
	return false
}

func TestFiveThousandOrphansAtOnce(t *testing.T) {
	const n = 5000
	k := run(t, "normal+noack,normal", "")
	gate := k.orphans(n, 3)
	gate.Close()
	told := map[int]int{}
	count := func(life int) {
		last := uint64(0)
		for seen := 0; seen < n; {
			e := k.exit()
			if e.Life != life || e.Exit.Status.ExitStatus() != 3 {
				continue // the shells between
			}
			if e.Exit.Seq <= last {
				t.Fatalf("exit %d after %d: not in order", e.Exit.Seq, last)
			}
			last = e.Exit.Seq
			told[e.Exit.Pid]++
			seen++
		}
	}
	count(1)
	kill(t, k.seen[0].PID)
	count(2) // nothing was acknowledged: all of it again
	if len(told) != n {
		t.Errorf("%d pids, want %d", len(told), n)
	}
	for pid, times := range told {
		if times != 2 {
			t.Errorf("exit of %d told %d times, want once to each worker", pid, times)
		}
	}
	k.ask(k.dial(), "Echo", "x")
}

func TestExitsAreBounded(t *testing.T) {
	k := run(t, "normal+noack", `{"Exits":32}`)
	gate := k.orphans(100, 3)
	gate.Close()
	k.logged("were dropped")

	held := run(t, "normal+noack", `{"Exits":32}`)
	held.ask(held.dial(), "Hold", "on")
	gate = held.orphans(100, 3)
	gate.Close()
	for range 100 {
		held.next("exit", func(e event) bool { return e.Event == "exit" && e.Exit.Status.ExitStatus() == 3 })
	}
	kill(t, held.seen[0].PID)
	for range 100 {
		held.next("exit", func(e event) bool { return e.Event == "exit" && e.Life == 2 && e.Exit.Status.ExitStatus() == 3 })
	}
}
