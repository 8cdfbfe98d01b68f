package keeper_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestReplayAfterKill(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	one, two := k.dial(), k.dial()
	// Unanswered requests with answered ones between them: gaps in the stream ids.
	var waiting []chan answer
	number := map[string]uint64{}
	for i := range 4 {
		client := one
		if i%2 == 1 {
			client = two
		}
		k.ask(client, "Echo", "gap")
		waiting = append(waiting, call(client, "Late", "2"))
		e := k.request("Late")
		number[fmt.Sprint(e.Call.Request)] = e.Call.Request
		if e.Call.Replay {
			t.Error("a first delivery is marked as a replay")
		}
		k.ask(client, "Echo", "gap")
	}
	kill(t, first.PID)
	if second := k.hello(); second.PID == first.PID {
		t.Fatal("no other worker")
	}
	for range waiting {
		e := k.request("Late")
		if number[fmt.Sprint(e.Call.Request)] == 0 {
			t.Errorf("request number %d was not given to the first worker, which had %v", e.Call.Request, number)
		}
		if !e.Call.Replay {
			t.Errorf("replay came as %+v", e.Call)
		}
		if e.Call.Oldest > e.Call.Request || e.Call.Oldest == 0 {
			t.Errorf("oldest %d of request %d", e.Call.Oldest, e.Call.Request)
		}
	}
	for _, w := range waiting {
		if a := <-w; a.err != nil || a.text != "2" {
			t.Errorf("answer %+v", a)
		}
	}
	k.ask(one, "Echo", "after")
	if e := k.request("Echo"); e.Call.Oldest != e.Call.Request {
		t.Errorf("oldest %d though only %d is unanswered", e.Call.Oldest, e.Call.Request)
	}
}

func TestRequestsWhileNoWorkerLives(t *testing.T) {
	k := run(t, "normal,crash,crash,crash,normal", "")
	kill(t, k.hello().PID)
	client := k.dial()
	var waiting []chan answer
	for range 10 {
		waiting = append(waiting, call(client, "Echo", "x"))
	}
	for _, w := range waiting {
		if a := <-w; a.err != nil {
			t.Error(a.err)
		}
	}
}

// TestDeadlineShrinksOnReplay: a client's deadline does not move because workers die.
func TestDeadlineShrinksOnReplay(t *testing.T) {
	k := run(t, "normal,crash,crash,normal", `{"Backoff":1000000000}`) // two short lives take their 2 s
	first := k.hello()
	client := k.dial()
	deadline := time.Now().Add(patience).UnixMilli()
	waiting := call(client, "Deadline", "")
	k.request("Deadline")
	kill(t, first.PID)
	a := <-waiting
	var set bool
	var left, at int64
	if _, err := fmt.Sscan(a.text, &set, &left, &at); err != nil || !set || left <= 0 || left >= patience.Milliseconds() {
		t.Errorf("deadline on replay: %+v", a)
	}
	if late := time.Duration(at-deadline) * time.Millisecond; late > time.Second {
		t.Errorf("the deadline has become %v later", late)
	}
}

// TestOldestIsTheFirstThatIsUnanswered: its answer must not be forgotten.
func TestOldestIsTheFirstThatIsUnanswered(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	call(client, "Late", "2")
	late := k.request("Late")
	for range 2 {
		k.ask(client, "Echo", "x")
		if e := k.request("Echo"); e.Call.Oldest != late.Call.Request {
			t.Errorf("oldest is %d; want %d, which is not answered", e.Call.Oldest, late.Call.Request)
		}
	}
}

func TestResponseInFlightAndPartialFrame(t *testing.T) {
	k := run(t, "raw+answer-die,normal", "")
	client := k.dial()
	first := call(client, "Replayed", "from the second worker")
	k.next("first request", func(e event) bool { return e.Event == "request" })
	second := call(client, "Replayed", "from the second worker")
	if a := <-first; a.err != nil || a.text != "raw" {
		t.Errorf("whole response of a dead worker: %+v", a)
	}
	// Of the second response twelve bytes were written: they must not reach the client.
	if a := <-second; a.err != nil || a.text != "from the second worker" {
		t.Errorf("request whose response was cut: %+v", a)
	}
}

func TestPoisonByPanic(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	wait := call(client, "Wait", "")
	k.request("Wait")
	a := <-call(client, "Panic", "")
	if status.Code(a.err) != codes.Internal || !strings.Contains(a.err.Error(), service+"/Panic") {
		t.Errorf("poisoned request answered %v, want Internal with its name", a.err)
	}
	select {
	case a := <-wait:
		t.Errorf("a Wait was answered: %+v", a)
	default:
	}
	k.next("the Wait again", func(e event) bool { return e.Method == "Wait" && e.Life == 3 })
	k.ask(client, "Echo", "goes on")
}

func TestSIGKILLNeverPoisons(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	if got := k.ask(client, "Die", "6"); got != "6" {
		t.Errorf("answer %q, want the sixth worker's", got)
	}
}

func TestClientGoneIsForgotten(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	client, other := k.dial(), k.dial()
	call(client, "Late", "2")
	k.request("Late")
	call(client, "Wait", "")
	k.request("Wait")
	client.Close()
	k.next("the Wait's end in the worker", func(e event) bool { return e.Event == "gave-up" })
	k.ask(other, "Echo", "")
	if e := k.request("Echo"); e.Call.Oldest != e.Call.Request {
		t.Errorf("oldest is %d, want %d: the client of the older one is gone", e.Call.Oldest, e.Call.Request)
	}
	kill(t, first.PID)
	k.hello()
	k.ask(other, "Echo", "x")
	for _, e := range k.seen {
		if e.Method == "Late" && e.Life == 2 {
			t.Error("the request of a gone client was replayed")
		}
	}
}
