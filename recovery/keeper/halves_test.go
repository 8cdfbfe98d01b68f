package keeper_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// TestNobodyAnswersHalfARequest: a worker that does cannot know what it answers, and is not believed.
func TestNobodyAnswersHalfARequest(t *testing.T) {
	k := run(t, "raw+answer-half,normal", "")
	conn := k.dialRaw()
	long := strings.Repeat("x", 3<<20)
	_, err := conn.Write(frame(1, "Echo", long))
	must(t, err)
	if _, code, text := receive(t, conn); code != 0 || !strings.Contains(text, long) {
		t.Errorf("answer of %d bytes, code %d", len(text), code)
	}
}

// stuffControl says hello and asks for so much, without reading what it is told, that the keeper listens to it no more.
// What it says last is unread when it dies.
func (w *fake) stuffControl() {
	const more = 1450 // than the keeper's socket and its patience with a worker that does not read; the rest fits into ours
	say := func(m protocol.Message, rights []byte) {
		for {
			err := unix.Sendmsg(3, m.Append(nil), rights, nil, 0)
			if err == nil {
				return
			}
			if err != unix.EAGAIN && err != unix.EINTR {
				panic(err)
			}
			_, _ = unix.Poll([]unix.PollFd{{Fd: 3, Events: unix.POLLOUT}}, -1)
		}
	}
	say(protocol.Message{Type: protocol.Hello, Protocol: protocol.Version}, nil)
	for range more {
		say(protocol.Message{Type: protocol.Fetch, Call: 1, Name: "nothing"}, nil)
	}
	say(protocol.Message{Type: protocol.Store, Call: 2, Name: "last"}, unix.UnixRights(1))
	_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	select {}
}

// TestTheLastOrdersOfAWorkerCount: it is dead, and what it has said is not yet read.
func TestTheLastOrdersOfAWorkerCount(t *testing.T) {
	k := run(t, "stuffed,normal", "")
	if e := k.hello(); e.Life != 2 || !slices.Contains(e.Names, "last") {
		t.Errorf("worker %d finds %v stored, want what the first one has stored last", e.Life, e.Names)
	}
}

// TestAReplacedDescriptorIsClosed: whoever has the other end would wait for ever.
func TestAReplacedDescriptorIsClosed(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	for _, name := range []string{"one", "two"} {
		must(t, unix.Mkfifo(filepath.Join(k.dir, name), 0o600))
		k.ask(client, "Store", "c/stdout "+filepath.Join(k.dir, name))
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", k.pid))
	must(t, err)
	open := map[string]bool{}
	for _, link := range links {
		at, _ := os.Readlink(link)
		open[filepath.Base(at)] = true
	}
	if open["one"] || !open["two"] {
		t.Errorf("the keeper has the replaced one: %t, the new one: %t", open["one"], open["two"])
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
