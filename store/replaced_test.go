package store

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"perdure/store/lifecycle"
)

// TestWhoWaitedOpensTheFileThatIsThere: who waits for the lock of a journal that is replaced meanwhile gets the new one,
// not the old one, which nobody will ever read.
func TestWhoWaitedOpensTheFileThatIsThere(t *testing.T) {
	old := createJournal(t)
	path := old.path(t)
	opened := make(chan *Journal)
	go func() {
		j, err := Open(path, time.Minute)
		if err != nil {
			t.Error(err)
		}
		opened <- j
	}()
	awaitDescriptors(t, path, 2)

	next := createJournal(t)
	launch(t, next)
	at := next.path(t)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at, path); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	j := <-opened
	if j == nil {
		t.FailNow()
	}
	checked(t, j)
	if j.State().Init.State != lifecycle.Running {
		t.Errorf("it has the replaced file: %+v", j.State())
	}
}

// awaitDescriptors waits until a file is open as often as that in this process.
func awaitDescriptors(t *testing.T, path string, want int) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; <-tick.C {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		have := 0
		for _, link := range links {
			if at, err := os.Readlink(link); err == nil && at == path {
				have++
			}
		}
		if have >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for somebody to open %s: it is open %d times", path, have)
		}
	}
}
