package keeper_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// quick shortens the watch over hangs: 50 ms, 20 ms, 200 ms, 100 ms.
const quick = `{"PingAfter":50000000,"PingEvery":20000000,"Hang":200000000,"Kill":100000000}`

func TestStoppedWorkerIsReplaced(t *testing.T) {
	k := run(t, "normal", quick)
	client := k.dial()
	if got := k.ask(client, "Stop", "on"); got != "on" {
		t.Errorf("answer %q", got)
	}
	k.logged("hangs: no answer")
}

func TestSlowRequestIsNoHang(t *testing.T) {
	k := run(t, "normal", quick)
	first := k.hello()
	client := k.dial()
	call(client, "Late", "2")
	number := k.request("Late").Call.Request
	for range 30 { // longer than the limit of 200 ms, at one ping in 20 ms
		e := k.next("a ping", func(e event) bool { return e.Event == "ping" })
		if e.PID != first.PID || e.Call.Request != number {
			t.Fatalf("ping %+v, want one for request %d to the first worker", e, number)
		}
	}
}

func TestWaitIsNotPinged(t *testing.T) {
	k := run(t, "normal+nopong", quick)
	client := k.dial()
	call(client, "Wait", "")
	k.request("Wait")
	// Pings come for the slow request behind it, and none before.
	call(client, "Late", "2")
	number := k.request("Late").Call.Request
	e := k.next("a ping", func(e event) bool { return e.Event == "ping" })
	if e.Call.Request != number {
		t.Errorf("ping for request %d, want %d", e.Call.Request, number)
	}
}

func TestHangTwiceIsPoison(t *testing.T) {
	k := run(t, "normal+nopong,normal+nopong,normal", quick)
	client := k.dial()
	if a := <-call(client, "Late", "9"); status.Code(a.err) != codes.Internal {
		t.Errorf("answer %+v, want Internal", a)
	}
	k.logged("goroutine ") // SIGQUIT made the worker write its stacks
	k.ask(client, "Echo", "x")
}

func TestMuteWorkerIsReplaced(t *testing.T) {
	k := run(t, "mute,normal", `{"Hello":3000000000}`)
	k.ask(k.dial(), "Echo", "x")
	k.logged("said no hello")
}

func TestGarbageIsNotBelieved(t *testing.T) {
	for _, mode := range []string{"garbage-control", "raw+garbage", "raw+unknown-stream", "raw+twice", "raw+data"} {
		t.Run(mode, func(t *testing.T) {
			k := run(t, mode+",normal", "")
			client := k.dial()
			a := <-call(client, "Echo", "x")
			if mode == "raw+twice" && a.text == "raw" { // the first of the two was right
				a = <-call(client, "Echo", "x")
			}
			if a.err != nil || a.text != "x" {
				t.Errorf("answer %+v", a)
			}
			k.logged("not to be trusted")
		})
	}
}

func TestClosedConnectionIsABrokenWorker(t *testing.T) {
	k := run(t, "normal", `{"Broken":50000000}`)
	first := k.hello()
	client := k.dial()
	call(client, "Late", "2")
	k.request("Late")
	call(client, "CloseConnections", "")
	k.logged("closed a socket")
	if e := k.hello(); e.PID == first.PID {
		t.Error("the same worker")
	}
}

// A closed socket may be a death that is reaped late: no request is given up for it.
func TestClosedConnectionIsNoFault(t *testing.T) {
	k := run(t, "normal", `{"Broken":50000000}`)
	if got := k.ask(k.dial(), "CloseConnections", "4"); got != "4" {
		t.Errorf("answer %q, want the fourth worker's", got)
	}
}
