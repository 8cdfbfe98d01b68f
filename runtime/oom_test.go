package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ownCgroup makes a cgroup with the memory controller for this test, without a runtime.
func ownCgroup(t *testing.T) Cgroup {
	t.Helper()
	requireRoot(t)
	name := fmt.Sprintf("perdure-test-%d-%d", os.Getpid(), serial.Add(1))
	mounts, err := cgroupMounts()
	must(t, err)
	g := Cgroup{dirs: map[string]string{}}
	for _, controller := range []string{"memory", "pids", unified} {
		m, ok := mounts[controller]
		if _, hybrid := g.dirs["memory"]; !ok || hybrid && controller == unified {
			continue
		}
		dir := filepath.Join(m.point, name)
		must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() {
			await(t, "cgroup "+dir+" to be removed", func() bool { return os.Remove(dir) == nil })
		})
		g.dirs[controller] = dir
	}
	return g
}

// eater is a script that is killed for want of memory, in a child, and says so.
const eater = `sh -c 'x=0123456789abcdef; while :; do x=$x$x; done'; echo killed >/dev/null; exec sleep 1000`

func watchedContainer(t *testing.T, changes ...change) (*container, *IO, *OOMWatch, int) {
	t.Helper()
	c := newContainer(t, append(changes, memoryLimit(16<<20))...)
	stdio, pid := c.create(Stdio{}, IOOptions{Direct: true})
	start, err := StartTime(pid)
	must(t, err)
	g, err := CgroupOf(pid, start)
	must(t, err)
	w, err := WatchOOM(c.store, "oom", g)
	must(t, err)
	t.Cleanup(func() { must(t, c.store.Drop("oom")) })
	t.Cleanup(w.Close)
	return c, stdio, w, pid
}

func fires(t *testing.T, w *OOMWatch) <-chan struct{} {
	t.Helper()
	p, err := NewOOMPoller()
	must(t, err)
	fired := make(chan struct{}, 16)
	remove, err := p.Add(w, func() {
		select {
		case fired <- struct{}{}:
		default:
		}
	})
	must(t, err)
	t.Cleanup(remove)
	return fired
}

func newsOf(t *testing.T, what string, fired <-chan struct{}) {
	t.Helper()
	select {
	case <-fired:
	case <-time.After(patience):
		t.Fatalf("waited %s in vain for %s", patience, what)
	}
}

// An OOM of a process that nobody of ours is the parent of is heard of and counted, by this
// worker and by the next, who has only what the keeper keeps.
func TestOOM(t *testing.T) {
	c, stdio, w, pid := watchedContainer(t, shell(eater))
	if kills, err := w.Kills(); kills != 0 || err != nil {
		t.Errorf("before the start: %d, %v", kills, err)
	}
	fired := fires(t, w)
	must(t, c.Start(c.ctx, c.intent("start")))
	newsOf(t, "news of the OOM", fired)
	await(t, "the kill to be counted", func() bool { kills, err := w.Kills(); return kills == 1 && err == nil })
	next, err := ResumeOOM(c.store, "oom")
	must(t, err)
	defer next.Close()
	if kills, err := next.Kills(); kills != 1 || err != nil {
		t.Errorf("the next worker counts %d, %v", kills, err)
	}
	if next.notify != nil {
		if !next.Notified() || !next.Drain() || next.Notified() || next.Drain() {
			t.Error("a notification stays until it is drained, once, for all workers")
		}
	} else if next.Notified() || next.Drain() {
		t.Error("version 2 counts first: there is no other notification")
	}
	if name, events := next.Wake(); c.store.files[name] == nil || events == 0 {
		t.Errorf("a resting worker is woken by %q (%x), which is not stored", name, events)
	}
	must(t, SignalProcess(pid, startOf(t, pid), unix.SIGKILL))
	reap(t, pid)
	stdio.Exited()
	must(t, c.Delete(c.ctx, c.intent("delete"), true))
	if kills, err := next.Kills(); err == nil {
		t.Errorf("of a cgroup that is gone: %d", kills)
	}
}

func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	start, err := StartTime(pid)
	must(t, err)
	return start
}

// A poller added to a watch that has news already tells it.
func TestOOMBeforeThePoller(t *testing.T) {
	c, stdio, w, pid := watchedContainer(t, shell(eater))
	must(t, c.Start(c.ctx, c.intent("start")))
	await(t, "the kill to be counted", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", fdOf(t, w.counter))) // not through the watch: that re-arms
		must(t, err)
		kills, err := oomKills(string(text))
		return kills == 1 && err == nil
	})
	newsOf(t, "news of the OOM", fires(t, w))
	must(t, SignalProcess(pid, startOf(t, pid), unix.SIGKILL))
	reap(t, pid)
	stdio.Exited()
}

func fdOf(t *testing.T, f *os.File) (n int) {
	t.Helper()
	must(t, control(f, func(fd int) error { n = fd; return nil }))
	return n
}

// A worker killed between any two steps of starting leaves what the next goes on with.
func TestWatchingIsRepeatable(t *testing.T) {
	g, s := ownCgroup(t), newStore(t)
	if _, err := ResumeOOM(s, "oom"); err == nil {
		t.Error("nobody has watched")
	}
	for range 2 { // the second is registered on the same eventfd
		w, err := WatchOOM(s, "oom", g)
		must(t, err)
		w.Close()
		must(t, s.Drop("oom/counter"))
	}
	w, err := WatchOOM(s, "oom", g)
	must(t, err)
	defer w.Close()
	if kills, err := w.Kills(); kills != 0 || err != nil {
		t.Errorf("%d, %v", kills, err)
	}
	must(t, s.Drop("oom"))
}

func TestNoMemoryController(t *testing.T) {
	s := newStore(t)
	for name, dirs := range map[string]map[string]string{
		"none":                     {"pids": t.TempDir()},
		"version 2 without memory": {unified: t.TempDir()},
		"gone":                     {"memory": filepath.Join(t.TempDir(), "gone")},
	} {
		if w, err := WatchOOM(s, "oom", Cgroup{dirs: dirs}); !errdefs.IsNotFound(err) {
			t.Errorf("%s: %v, %v", name, w, err)
		}
	}
	if left := s.names(); len(left) > 0 {
		t.Errorf("stored: %v", left)
	}
}

func TestOOMCounters(t *testing.T) {
	for text, want := range map[string]uint64{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":               3,
		"low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 9\n": 1,
	} {
		if kills, err := oomKills(text); kills != want || err != nil {
			t.Errorf("%q: %d, %v", text, kills, err)
		}
	}
	if kills, err := oomKills("oom 1\n"); err == nil {
		t.Errorf("no counter reads as %d", kills)
	}
}
