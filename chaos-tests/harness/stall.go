package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// A thread that waits uninterruptibly (state D) for another process instead of
// a disk is stuck in a way that nobody can end: a blocking splice does that to
// whoever opens the pipe's other end. Waiting for a disk, or for memory of a
// machine that is overloaded, shows as D as well; so only a thread counts that
// the kernel has inside a pipe, a fifo or a splice.

const (
	stallLook  = 200 * time.Millisecond // each look reads the state of every thread of the machine
	stallLimit = time.Second            // a pipe's lock is held for microseconds
)

// stallWatcher watches the threads of the test's processes: this program,
// containerd, shims, runc and containers.
type stallWatcher struct {
	h     *Harness
	quit  chan struct{}
	done  sync.WaitGroup
	since map[string]time.Time // thread directory: when it was first seen in D
	told  map[string]bool
}

func watchForStalls(h *Harness) *stallWatcher {
	w := &stallWatcher{h: h, quit: make(chan struct{}), since: map[string]time.Time{}, told: map[string]bool{}}
	w.done.Go(func() {
		tick := time.NewTicker(wait.Limit(stallLook))
		defer tick.Stop()
		for {
			select {
			case <-w.quit:
				return
			case now := <-tick.C:
				w.look(now)
			}
		}
	})
	return w
}

func (w *stallWatcher) stop() {
	close(w.quit)
	w.done.Wait()
}

// look notes the threads that are in D. One that is there for longer than
// stallLimit fails the test.
func (w *stallWatcher) look(now time.Time) {
	waiting := map[string]bool{}
	threads, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if !inD(thread) {
			continue
		}
		waiting[thread] = true
		first, known := w.since[thread]
		if !known {
			w.since[thread] = now
			continue
		}
		if now.Sub(first) > wait.Limit(stallLimit) && !w.told[thread] {
			w.told[thread] = true
			w.report(thread, now.Sub(first))
		}
	}
	for thread := range w.since {
		if !waiting[thread] {
			delete(w.since, thread)
		}
	}
}

func inD(thread string) bool {
	data, err := os.ReadFile(filepath.Join(thread, "stat"))
	if err != nil {
		return false
	}
	_, after, ok := strings.Cut(string(data), ") ")
	return ok && strings.HasPrefix(after, "D")
}

// report fails the test if the thread is one of the test's, and says where in
// the kernel it waits.
func (w *stallWatcher) report(thread string, waited time.Duration) {
	pid, err := strconv.Atoi(strings.Split(thread, "/")[2])
	if err != nil {
		return
	}
	who, err := proc.Read(pid)
	if err != nil || !w.ours(who) {
		return
	}
	stack, err := os.ReadFile(filepath.Join(thread, "stack"))
	if err == nil && !strings.Contains(string(stack), "pipe") && !strings.Contains(string(stack), "fifo") && !strings.Contains(string(stack), "splice") {
		return
	}
	if err != nil {
		stack = []byte(err.Error())
	}
	w.h.t.Errorf("in state D for %v: thread %s of %v:\n%s", waited, filepath.Base(thread), who, stack)
}

func (w *stallWatcher) ours(p proc.Process) bool {
	return p.Pid == os.Getpid() || p.Mentions(w.h.Namespace) || p.Mentions(w.h.Dir())
}
