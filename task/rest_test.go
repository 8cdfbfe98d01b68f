package task

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNothingBeginsAfterRest: an exit that came between the decision to leave and
// the worker's end would be journaled and acknowledged, and then told by nobody.
func TestNothingBeginsAfterRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		i := idle{after: time.Second, never: make(chan struct{})}
		i.check = func() bool { looks++; return looks == 2 }
		i.begin()
		i.end()
		<-time.After(time.Second) // of the bubble
		synctest.Wait()
		i.begin() // the first look found something to do
		i.end()
		<-time.After(time.Second) // of the bubble
		synctest.Wait()
		begun := false
		go func() { i.begin(); begun = true }()
		synctest.Wait()
		if begun {
			t.Error("something began in a worker that leaves")
		}
		close(i.never)
		synctest.Wait()
		if looks != 2 {
			t.Errorf("%d looks, want 2", looks)
		}
	})
}

// A look that finds nothing does not keep a worker up; one that finds something does,
// and no worker leaves in between.
func TestOnlyWhatIsNeededKeepsAWorkerUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := false
		i := idle{after: time.Second, never: make(chan struct{}), check: func() bool { left = true; return true }}
		i.begin()
		i.end()
		for range 3 {
			<-time.After(400 * time.Millisecond) // of the bubble
			if !left && i.beginIf(func() bool { return false }) {
				t.Error("what is not needed began")
			}
		}
		synctest.Wait()
		if !left {
			t.Error("looks that found nothing have kept the worker up")
		}
		looked := false
		go i.beginIf(func() bool { looked = true; return true })
		synctest.Wait()
		if looked {
			t.Error("a worker that leaves has looked, and taken the notification with it")
		}
		close(i.never)
		synctest.Wait()
	})
}
