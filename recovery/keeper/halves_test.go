package keeper_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// TestHalfARequestIsGivenWholeToTheNextWorker: one that dies with half a request leaves nothing of it before what the
// next one gets.
func TestHalfARequestIsGivenWholeToTheNextWorker(t *testing.T) {
	k := run(t, "raw+read-one-die,normal", "")
	conn := k.dialRaw()
	long := strings.Repeat("x", 3<<20) // more than a socket takes
	_, err := conn.Write(frame(1, "Echo", long))
	must(t, err)
	if e := k.request("Echo"); e.Life != 2 || !e.Call.Replay {
		t.Errorf("the request came whole to worker %d, replay %t; want the second one", e.Life, e.Call.Replay)
	}
	if _, code, text := receive(t, conn); code != 0 || !strings.Contains(text, long) {
		t.Errorf("answer of %d bytes, code %d", len(text), code)
	}
}

// TestAnAnswerThatWasNotReadYetCounts: what a worker has answered before it dies stays in its socket as long as its
// client takes nothing. It is the answer, and no later worker is asked.
func TestAnAnswerThatWasNotReadYetCounts(t *testing.T) {
	k := run(t, "raw+long-then-short,normal", "")
	worker := k.hello()
	conn := k.dialRaw()
	for _, stream := range []uint32{1, 3} {
		_, err := conn.Write(frame(stream, "Echo", "of a later worker"))
		must(t, err)
	}
	k.next("both answers in the socket", func(e event) bool { return e.Event == "noted" })
	kill(t, worker.PID)
	k.hello()
	if stream, code, text := receive(t, conn); stream != 1 || code != 0 || len(text) < 1<<20 {
		t.Errorf("long answer: stream %d, code %d, %d bytes", stream, code, len(text))
	}
	if stream, code, text := receive(t, conn); stream != 3 || code != 0 || !strings.Contains(text, "raw") {
		t.Errorf("short answer: stream %d, code %d, %.30q; want the dead worker's", stream, code, text)
	}
}

// acknowledgeAndDie acknowledges the first exits to a keeper that is stopped and reads none of it before it learns of this
// worker's death.
func (w *fake) acknowledgeAndDie(_ context.Context, _ protocol.Call, in string) (string, error) {
	n, err := strconv.ParseUint(in, 10, 64)
	if err != nil || w.life > 1 {
		return in, err
	}
	_ = unix.Kill(w.client.Welcome().KeeperPID, unix.SIGSTOP)
	for seq := range n {
		w.client.Acknowledge(seq + 1)
	}
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// TestTheLastOrdersOfAWorkerCount: it is dead, and what it has said is not yet read.
func TestTheLastOrdersOfAWorkerCount(t *testing.T) {
	const many = 180 // what fits into the socket
	k := run(t, "normal+noack,normal", "")
	worker := k.hello()
	gate := k.orphans(many, 7)
	gate.Close()
	for range many {
		k.exit()
	}
	waiting := call(k.dial(), "AcknowledgeAndDie", fmt.Sprint(many))
	k.eventually("the worker's end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", worker.PID))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
	must(t, unix.Kill(k.pid, unix.SIGCONT))
	if a := <-waiting; a.err != nil {
		t.Error(a.err)
	}
	k.ask(k.dial(), "Spawn", "/dev/null 1 3") // its exit is told after all that are not acknowledged
	if e := k.exit(); e.Life != 2 || e.Exit.Seq != many+1 {
		t.Errorf("worker %d was told of exit %d, which was acknowledged", e.Life, e.Exit.Seq)
	}
}

// TestAnExitHasOneTime: that of its end, however often and late it is told.
func TestAnExitHasOneTime(t *testing.T) {
	k := run(t, "normal+noack", "")
	k.hello()
	k.orphans(1, 7).Close()
	first := k.exit()
	kill(t, first.PID)
	if second := k.exit(); second.Life != 2 || second.Exit != first.Exit {
		t.Errorf("told to the next worker as %+v, to the first as %+v", second.Exit, first.Exit)
	}
}
