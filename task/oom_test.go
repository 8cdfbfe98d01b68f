package task

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"perdure/store/lifecycle"
)

// What is told follows the kernel's counter, which never goes back; a notification that
// the counter does not explain is told by itself.
func TestNextOOM(t *testing.T) {
	for _, c := range []struct {
		told     lifecycle.OOM
		kills    uint64
		notified bool
		want     lifecycle.OOM
		news     bool
	}{
		{lifecycle.OOM{}, 0, false, lifecycle.OOM{}, false},
		{lifecycle.OOM{}, 1, false, lifecycle.OOM{Told: 1, Kills: 1}, true},
		{lifecycle.OOM{}, 1, true, lifecycle.OOM{Told: 1, Kills: 1}, true},
		{lifecycle.OOM{}, 0, true, lifecycle.OOM{Told: 1}, true},                              // before the kill, or in a cgroup below
		{lifecycle.OOM{Told: 1}, 1, false, lifecycle.OOM{Told: 2, Kills: 1}, true},            // the kill came later
		{lifecycle.OOM{Told: 1, Kills: 1}, 1, false, lifecycle.OOM{Told: 1, Kills: 1}, false}, // nothing new
		{lifecycle.OOM{Told: 1, Kills: 1}, 4, false, lifecycle.OOM{Told: 2, Kills: 4}, true},  // several at once
		{lifecycle.OOM{Told: 3, Kills: 5}, 5, true, lifecycle.OOM{Told: 4, Kills: 5}, true},   // once more without a kill
		{lifecycle.OOM{Told: 3, Kills: 5}, 2, false, lifecycle.OOM{Told: 3, Kills: 5}, false}, // another cgroup of this name
		{lifecycle.OOM{Told: 3, Kills: 5}, 2, true, lifecycle.OOM{Told: 4, Kills: 5}, true},   // likewise
	} {
		if next, news := nextOOM(c.told, c.kills, c.notified); next != c.want || news != c.news {
			t.Errorf("told %+v, killed %d, notified %t: %+v, %t, want %+v, %t", c.told, c.kills, c.notified, next, news, c.want, c.news)
		}
	}
}

// A limit that is reached again and again keeps the worker; an OOM told does not.
func TestNoiseOfALimit(t *testing.T) {
	var o oom
	now := time.Now()
	if o.noisy(now) {
		t.Error("noisy from the start")
	}
	o.reached.at.Store(&now)
	if !o.noisy(now.Add(oomQuiet)) || o.noisy(now.Add(oomQuiet+time.Second)) {
		t.Error("noise lasts for oomQuiet")
	}
}

// unified is a watch that is notified of limits that are reached, too.
type unified struct{ OOMWatch }

func (unified) Kills() (uint64, error) { return 0, nil }
func (unified) Notified() bool         { return false }
func (unified) OnlyOOMs() bool         { return false }

// Looking by itself, as after a start, is no notification: such a worker may rest.
func TestALookIsNoNoise(t *testing.T) {
	c := &container{svc: &Service{Config: Config{Now: time.Now}}}
	c.view.Store(&view{Container: &lifecycle.Container{}})
	c.oom.watch.Store(&watched{unified{}})
	if c.oomNews(false) || c.oom.noisy(time.Now()) {
		t.Error("a look keeps the worker")
	}
	if c.oomNews(true) || !c.oom.noisy(time.Now()) {
		t.Error("a limit that was reached does not keep the worker")
	}
}

// A watch whose container has gone while it was made is let go at once.
func TestWatchOfAContainerThatIsGoneIsLetGo(t *testing.T) {
	dir := t.TempDir()
	counter := filepath.Join(dir, "memory.events")
	if err := os.WriteFile(counter, []byte("oom_kill 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(counter)
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewMachine().ResumeOOM(shelf{files: map[string]*os.File{"oom/counter": f}}, "oom")
	if err != nil {
		t.Fatal(err)
	}
	c := &container{svc: &Service{}, stopped: make(chan struct{})}
	close(c.stopped)
	c.heedOOM(w)
	if kills, err := w.Kills(); err == nil {
		t.Errorf("the watch is still open: %d", kills)
	}
	if c.oom.watch.Load() != nil {
		t.Error("the watch is kept")
	}
}
