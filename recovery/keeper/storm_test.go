package keeper_test

import (
	"fmt"
	"sync"
	"testing"
)

// Callers notice nothing of workers that are killed under them, one after the
// other: every call has its own answer.
func TestKillsUnderLoad(t *testing.T) {
	k := run(t, "normal", `{"ShortLife":1}`)
	k.hello()
	const callers, kills = 8, 25
	stop := make(chan struct{})
	var group sync.WaitGroup
	failures := make(chan string, callers)
	for n := range callers {
		client := k.dial()
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("%d/%d", n, i)
				if a := <-call(client, "Echo", text); a.err != nil || a.text != text {
					failures <- fmt.Sprintf("%s answered %+v", text, a)
					return
				}
			}
		}()
	}
	replays := 0
	for range kills {
		// In the middle of the work of this life.
		e := k.next("a request", func(e event) bool { return e.Event == "request" })
		for e.Life != k.lastLife() {
			e = k.next("a request of the last life", func(e event) bool { return e.Event == "request" })
		}
		kill(t, e.PID)
		k.next("the next life", func(next event) bool { return next.Event == "hello" && next.Life == e.Life+1 })
	}
	close(stop)
	group.Wait()
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	for _, e := range k.seen {
		if e.Call.Replay {
			replays++
		}
	}
	if replays == 0 {
		t.Error("no request was in flight at any kill: nothing was tested")
	}
}

// lastLife is that of the last worker that said hello.
func (k *kept) lastLife() int {
	for i := len(k.seen) - 1; i >= 0; i-- {
		if k.seen[i].Event == "hello" {
			return k.seen[i].Life
		}
	}
	return 0
}
