package runtime

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

var onPipe = regexp.MustCompile("pipe|splice|fifo")

// watchD looks for threads of the test and its descendants that stay in
// uninterruptible sleep on a pipe, as a splice causes that blocks with the pipe's lock
// in hand. Disks, dying processes and busy terminals have other reasons.
func watchD(t *testing.T) {
	t.Helper()
	const tooLong = 2 * time.Second // a busy machine alone takes 300 ms
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		since := map[string]time.Time{}
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			now, sleeping := time.Now(), uninterruptible()
			for thread := range since {
				if _, still := sleeping[thread]; !still {
					delete(since, thread)
				}
			}
			for thread, stat := range sleeping {
				if first, known := since[thread]; !known {
					since[thread] = now
				} else if now.Sub(first) > tooLong {
					stack, err := os.ReadFile(filepath.Join(thread, "stack"))
					if err != nil || !onPipe.Match(stack) {
						continue
					}
					t.Errorf("thread in D state for %s: %s\n%s", now.Sub(first), stat, stack)
					return
				}
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

// uninterruptible maps threads to their stat lines.
func uninterruptible() map[string]string {
	found := map[string]string{}
	next := []int{os.Getpid()}
	for len(next) > 0 {
		pid := next[0]
		next = append(next[1:], children(pid)...)
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, path := range stats {
			stat, _ := os.ReadFile(path)
			if end := bytes.LastIndexByte(stat, ')'); end > 0 && bytes.HasPrefix(stat[end+1:], []byte(" D ")) {
				found[filepath.Dir(path)] = string(stat)
			}
		}
	}
	return found
}
