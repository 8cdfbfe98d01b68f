package keeper_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/rendezvous"
)

// gone waits until no process has the pid, that is, until the keeper reaped it.
func (k *kept) gone(pid int) {
	k.t.Helper()
	k.eventually("the end of the worker", func() bool { return unix.Kill(pid, 0) != nil })
}

func TestIdleWorkerStaysAway(t *testing.T) {
	k := run(t, "normal", `{"FreshWait":1}`)
	first := k.hello()
	client := k.dial()
	wait := call(client, "Wait", "")
	k.request("Wait")
	k.ask(client, "Rest", "")
	k.gone(first.PID)
	// With exit code 0 and nothing but a Wait pending, no worker comes back. What
	// proves it is that the next life begins with this request.
	if got := k.ask(client, "Echo", "wake up"); got != "wake up" {
		t.Errorf("answer %q", got)
	}
	if e := k.hello(); e.Life != 2 {
		t.Errorf("life %d, want 2", e.Life)
	}
	k.next("the Wait again", func(e event) bool { return e.Method == "Wait" && e.Call.Replay })
	select {
	case a := <-wait:
		t.Errorf("the Wait was answered: %+v", a)
	default:
	}
}

func TestExitWakesAnIdleWorker(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	client := k.dial()
	gate := k.orphans(1, 5)
	k.ask(client, "Rest", "")
	k.gone(first.PID)
	gate.Close()
	k.next("the exit", func(e event) bool {
		return e.Event == "exit" && e.Life == 2 && e.Exit.Status.ExitStatus() == 5
	})
}

func TestFreshWaitBringsAWorkerBack(t *testing.T) {
	k := run(t, "normal", "")
	k.hello()
	client := k.dial()
	call(client, "Wait", "")
	k.request("Wait")
	k.ask(client, "Rest", "")
	// It may never have read the Wait, for all the keeper knows.
	k.next("the Wait again", func(e event) bool { return e.Method == "Wait" && e.Life == 2 })
}

// A worker that leaves as idle though it is owed for is restarted, with pauses.
func TestIdleThoughOwed(t *testing.T) {
	k := run(t, "idle,idle,idle,normal", "")
	if got := k.ask(k.dial(), "Echo", "x"); got != "x" {
		t.Errorf("answer %q", got)
	}
}

// What somebody else kills may have been getting on well: whoever waits for an
// answer does not wait as long as for workers that end by themselves.
func TestKilledWorkersAreReplacedSoon(t *testing.T) {
	k := run(t, "normal", `{"Backoff":3600000000000,"BackoffOwed":3600000000000,"BackoffKilled":1000000}`)
	call(k.dial(), "Wait", "")
	for range 3 {
		kill(t, k.request("Wait").PID)
	}
	k.request("Wait")
}

func TestLeave(t *testing.T) {
	k := run(t, "normal", "")
	k.hello()
	client := k.dial()
	wait := call(client, "Wait", "")
	k.request("Wait")
	slow := call(client, "Replayed", "answered first")
	k.request("Replayed")
	if got := k.ask(client, "Leave", "bye"); got != "bye" {
		t.Errorf("answer %q", got)
	}
	for _, suffix := range []string{"", ".start", ".keeper"} {
		if _, err := os.Stat(k.socket + suffix); !os.IsNotExist(err) {
			t.Errorf("%s%s is still there: %v", k.socket, suffix, err)
		}
	}
	// It owes an answer still, and goes on serving for it.
	kill(t, k.seen[0].PID)
	if a := <-slow; a.err != nil || a.text != "answered first" {
		t.Errorf("request unanswered when the keeper was told to leave: %+v", a)
	}
	if a := <-wait; a.err == nil {
		t.Errorf("the Wait was answered: %+v", a)
	}
	if status := k.exited(); !status.Exited() || status.ExitStatus() != 0 {
		t.Errorf("keeper ended with %v", status)
	}
}

func TestLeaveWaitsForTheLock(t *testing.T) {
	k := run(t, "normal", "")
	k.hello()
	lock, err := rendezvous.LockStart(k.socket, 0)
	must(t, err)
	client := k.dial()
	leave := call(client, "Leave", "bye")
	k.request("Leave")
	again := call(client, "Leave", "bye")
	k.request("Leave")
	k.ask(client, "Echo", "still served")
	if there, err := rendezvous.Connectable(k.socket); err != nil || !there {
		t.Errorf("gone while another start looked: %v", err)
	}
	// That other start has looked: its client will come, so nobody leaves.
	must(t, lock.Close())
	for _, leave := range []chan answer{leave, again} {
		if a := <-leave; a.err == nil {
			t.Errorf("left though another start was given the socket: %+v", a)
		}
	}
	// The client came, and is through: now it may leave.
	k.ask(k.dial(), "Echo", "the promised one")
	k.ask(client, "Leave", "bye")
	k.exited()
}

// Members of a pod are started side by side: each start counts on the keeper until its own client has spoken.
func TestLeaveWaitsForEveryClientThatWasPromised(t *testing.T) {
	k := run(t, "normal", `{"Promise":3600000000000}`)
	k.hello()
	client := k.dial()
	k.ask(client, "Echo", "the first member")
	for range 2 {
		if there, err := rendezvous.Connectable(k.socket); err != nil || !there {
			t.Fatalf("a start finds nobody: %v", err)
		}
	}
	k.ask(k.dial(), "Echo", "one of the two")
	if a := <-call(client, "Leave", "bye"); a.err == nil {
		t.Error("left though another start was given the socket")
	}
	k.ask(k.dial(), "Echo", "the other one")
	k.ask(client, "Leave", "bye")
	k.exited()
}

// However long a client takes that has connected: containerd prepares a root file system before its Create, and passes on
// what its own clients ask meanwhile.
func TestLeaveWaitsForAClientThatHasOnlyAsked(t *testing.T) {
	k := run(t, "normal", `{"Promise":1}`)
	k.hello()
	client := k.dial()
	silent := k.dial()
	for range 2 {
		if a := <-call(client, "Leave", "bye"); a.err == nil {
			t.Error("left though a client is connected that has done nothing yet")
		}
		<-call(silent, "State", "is it there")
	}
	must(t, silent.Close())
	k.eventually("nobody to be expected", func() bool { return (<-call(client, "Leave", "bye")).err == nil })
	k.exited()
}

// A Create may be with the keeper when the worker finds that no task is left.
func TestLeaveWithACreateUnderWay(t *testing.T) {
	k := run(t, "normal", "")
	worker := k.hello().PID
	client := k.dial()
	create := call(client, "Create", "made")
	k.request("Create")
	if a := <-call(client, "Leave", "bye"); a.err == nil || !strings.Contains(a.err.Error(), "creates a task") {
		t.Errorf("left under a Create: %+v", a)
	}
	kill(t, worker)
	if a := <-create; a.err != nil || a.text != "made" {
		t.Errorf("the Create: %+v", a)
	}
	k.ask(client, "Create", "failed") // its own one is no reason to stay
	k.exited()
}

func TestWantShutdownIsRemembered(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	if first.Wanted {
		t.Error("wanted from the beginning")
	}
	k.ask(k.dial(), "WantShutdown", "")
	kill(t, first.PID)
	if e := k.hello(); !e.Wanted {
		t.Error("forgotten")
	}
}

func TestWorkerLeavesWithTheKeeper(t *testing.T) {
	k := run(t, "normal", "")
	worker := k.hello().PID
	kill(t, k.pid)
	k.exited()
	fd, err := unix.PidfdOpen(worker, 0)
	if err == nil {
		defer unix.Close(fd)
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); err != nil || n == 0 {
			t.Error("the worker outlives its keeper")
		}
	}
	dead, err := rendezvous.Dead(k.socket)
	must(t, err)
	if !dead {
		t.Error("the keeper's lock is still held")
	}
}
