package task

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"perdure/internal/crash"
	"perdure/store"
	"perdure/store/lifecycle"
)

// oom is a container's watch for the kernel killing its processes for want of
// memory.
//
// What counts is the kernel's own counter of the killed, and how far the journal
// has told it: whatever a dead worker has heard or not, the next one looks and
// knows. A notification only says when to look: when it comes, when a process of
// the container ends (before that is journaled, and in the same transaction), and
// when a worker takes the container over.
type oom struct {
	watch   atomic.Pointer[watched] // nil: there is nothing to watch; set with remove
	told    moment                  // of the last one that this worker has told
	reached moment                  // of the last notification that was about no OOM

	mu             sync.Mutex
	remove         func() // ends the notifications
	heard, looking bool
	notified       bool // what was heard is a notification
}

type watched struct{ OOMWatch }

// oomGrace is how long after an early notification the kernel may take to count
// the kill that it is about. A notification without a kill is told after it: the
// victim is in a cgroup below, the counter of which is another, or the limit is
// that of the pod.
const oomGrace = 100 * time.Millisecond

// oomSame is how long after an OOM was told a notification belongs to it.
const oomSame = time.Second

const (
	// oomPause is the longest pause after a look without news. Version 2 notifies, up
	// to a hundred times a second, also when a limit is reached and nobody is killed.
	oomPause = time.Second
	// oomQuiet is how long after such a notification a worker does not rest: each of
	// them would start the next one for nothing.
	oomQuiet = 5 * time.Minute
)

func (o *oom) noisy(now time.Time) bool { return o.reached.within(oomQuiet, now) }

// moment is a time that may not have come yet.
type moment struct{ at atomic.Pointer[time.Time] }

func (m *moment) within(limit time.Duration, now time.Time) bool {
	at := m.at.Load()
	return at != nil && now.Sub(*at) <= limit
}

// accounted finds the cgroup of an init that has just come up and watches it,
// before the one who asked for it is answered. What it returns is journaled.
func (c *container) accounted(p lifecycle.Process) string {
	g, err := c.svc.Machine.CgroupOf(p.Pid, p.Start)
	if err == nil && os.Geteuid() == 0 {
		err = g.EnableControllers()
	}
	if err != nil && !errdefs.IsNotFound(err) { // it may have ended already
		c.svc.warn(c.id, "find the cgroup and switch its controllers on", err)
	}
	if g.IsZero() {
		return ""
	}
	c.watchOOM(g)
	return g.String()
}

// adoptOOM goes on watching for an earlier worker, or begins where that died
// before it could.
func (c *container) adoptOOM() {
	v := c.state()
	if v.InitExitTold() {
		return
	}
	w, err := c.svc.Machine.ResumeOOM(c.svc.Keeper, c.oomPrefix())
	switch {
	case err == nil:
		c.heedOOM(w)
	case !errors.Is(err, os.ErrNotExist):
		c.svc.warn(c.id, "OOM events may be missed", err)
	case v.Init.Process.Pid != 0:
		if g, err := c.cgroup(); err == nil {
			c.watchOOM(g)
		}
	}
}

func (c *container) oomPrefix() string { return c.key() + "/oom" }

func (c *container) watchOOM(g Cgroup) {
	if c.oom.watch.Load() != nil { // a conclusion that is tried again
		return
	}
	w, err := g.WatchOOM(c.svc.Keeper, c.oomPrefix())
	switch {
	case err == nil:
		c.heedOOM(w)
	case errdefs.IsNotFound(err):
		log.L.WithError(err).WithField("container", c.id).Debug("OOM events are not watched for")
	default:
		c.svc.warn(c.id, "OOM events may be missed", err)
	}
}

// heedOOM looks whenever there is news. Without a poller the counter is still
// looked at when a process ends. The container may be gone already: then nobody
// comes to let the watch go.
func (c *container) heedOOM(w OOMWatch) {
	c.oom.mu.Lock()
	defer c.oom.mu.Unlock()
	if c.isGone() || c.oom.watch.Load() != nil {
		w.Close()
		return
	}
	c.oom.watch.Store(&watched{w})
	var err error
	if c.oom.remove, err = w.Heed(c.oomNotified); err != nil {
		c.svc.warn(c.id, "OOM events are told late", err)
	}
}

// unwatchOOM lets this worker's part of the watch go. Only the actor calls it.
func (c *container) unwatchOOM() {
	c.oom.mu.Lock()
	defer c.oom.mu.Unlock()
	if c.oom.remove != nil {
		c.oom.remove()
		c.oom.remove = nil
	}
	if w := c.oom.watch.Swap(nil); w != nil {
		w.Close()
	}
}

// oomNotified is called for each notification, and does not block.
func (c *container) oomNotified() { c.oomLookSoon(true) }

// oomHeard has the counter looked at where nothing was notified of, and does not block.
func (c *container) oomHeard() { c.oomLookSoon(false) }

func (c *container) oomLookSoon(notified bool) {
	c.oom.mu.Lock()
	defer c.oom.mu.Unlock()
	c.oom.heard = true
	c.oom.notified = c.oom.notified || notified
	if !c.oom.looking {
		c.oom.looking = true
		go c.oomLooks()
	}
}

// oomLooks looks until nothing more was heard. After a look without news it does
// not look for a while, each time for longer, and then once, whatever was heard.
func (c *container) oomLooks() {
	for pause := oomGrace; ; {
		c.oom.mu.Lock()
		c.oom.looking, c.oom.heard = c.oom.heard, false
		looking, notified := c.oom.looking, c.oom.notified
		c.oom.notified = false
		c.oom.mu.Unlock()
		if !looking {
			return
		}
		if c.svc.idle.beginIf(func() bool { return c.oomNews(notified) }) {
			c.oomLook()
			c.svc.idle.end()
			pause = oomGrace
			continue
		}
		select {
		case <-time.After(pause):
		case <-c.stopped:
			return
		}
		pause = min(2*pause, oomPause)
	}
}

// oomNews reports whether there may be something to tell. Looking re-arms the
// notification, so it is done only by a worker that is not leaving. A notification
// without news is of a limit that was merely reached.
func (c *container) oomNews(notified bool) bool {
	w := c.oom.watch.Load()
	if w == nil {
		return false
	}
	kills, err := w.Kills()
	if err != nil || kills > c.state().Init.OOM.Kills || w.Notified() {
		return true
	}
	if now := c.svc.Now(); notified && !w.OnlyOOMs() && !c.oom.told.within(oomSame, now) {
		c.oom.reached.at.Store(&now)
	}
	return false
}

// oomLook tells what the counter has. Where an early notification is not explained
// by that it looks again after a while, and tells it then in any case.
func (c *container) oomLook() {
	err := c.tellOOM(false)
	w := c.oom.watch.Load()
	if w == nil || err == nil && !w.Notified() {
		return
	}
	wait := oomGrace
	if err != nil {
		wait = exitRetry
	}
	select {
	case <-time.After(wait):
	case <-c.stopped:
		return
	}
	if err = c.tellOOM(true); err != nil {
		c.svc.warn(c.id, "an OOM could not be journaled; it is tried again", err)
		c.oomHeard()
	}
}

// tellOOM journals and tells what is not told yet; see untoldOOM.
func (c *container) tellOOM(unexplained bool) (err error) {
	told := false
	c.do(func() {
		if _, starting := c.state().Opened(lifecycle.OpStart, ""); starting {
			return // it is told after the start, which looks again
		}
		records, events := c.untoldOOM(unexplained)
		if told = len(records) > 0; told {
			_, err = c.commit(events, records...)
		}
		if err == nil && (told || unexplained) {
			c.oomExplained(told)
		}
	})
	if told && err == nil {
		crash.Here(string(lifecycle.OpOOM), "", crash.AfterRecord)
	}
	return err
}

// oomExplained forgets the early notifications of an OOM that was told. What comes
// while they are being forgotten has another look. Only the actor calls it.
func (c *container) oomExplained(told bool) {
	if told {
		now := c.svc.Now()
		c.oom.told.at.Store(&now)
		c.oom.reached.at.Store(nil) // it may have been looked for before the kernel had counted it
	}
	if w := c.oom.watch.Load(); w != nil && w.Drain() {
		c.oomHeard()
	}
}

// untoldOOM makes the record and the event of an OOM that is not told yet: the
// kernel has killed more than the journal knows. Where unexplained is set also a
// notification without a kill counts, but for one right after an OOM: whoever
// wants memory while a victim is dying makes one. Only the actor calls it.
func (c *container) untoldOOM(unexplained bool) ([]lifecycle.Record, []store.Event) {
	w := c.oom.watch.Load()
	if w == nil {
		return nil, nil
	}
	kills, err := w.Kills() // first, as it re-arms the notification
	if err != nil {
		c.unwatchOOM() // the cgroup is gone
		return nil, nil
	}
	now, v := c.svc.Now(), c.state()
	unexplained = unexplained && !c.oom.told.within(oomSame, now) && w.Notified()
	next, news := nextOOM(v.Init.OOM, kills, unexplained)
	if !news || v.Check(lifecycle.OpOOM, "") != nil {
		return nil, nil
	}
	crash.Here(string(lifecycle.OpOOM), "", crash.BeforeRecord)
	record := lifecycle.Record{Op: lifecycle.OpOOM, Phase: lifecycle.Observed, OOM: &next, At: now}
	return []lifecycle.Record{record}, []store.Event{event(topicOOM, now, &events.TaskOOM{ContainerID: c.id})}
}

// nextOOM is the rule: what is to be told after told, if there is news. Several kills
// that are seen at once are one OOM.
func nextOOM(told lifecycle.OOM, kills uint64, notified bool) (next lifecycle.OOM, news bool) {
	if kills <= told.Kills && !notified {
		return told, false
	}
	return lifecycle.OOM{Told: told.Told + 1, Kills: max(kills, told.Kills)}, true
}
