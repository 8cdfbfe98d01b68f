//go:build chaos

package matrix

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/scene"
	"perdure/chaos-tests/wait"
)

// TestDaemon has containerd killed while a worker is held at each of the points, several of them at once.
func TestDaemon(t *testing.T) { heldTwice(t, false) }

// TestDaemonAndWorker has the worker killed with it.
func TestDaemonAndWorker(t *testing.T) { heldTwice(t, true) }

func heldTwice(t *testing.T, workers bool) {
	c := newCompany(t)
	jobs := only(t)
	if jobs == nil {
		p := newPlan()
		c.all(lives(), p.learn)
		jobs = p.singles()
	}
	var together []job
	for _, j := range jobs {
		if !j.scene.Alone && !j.terminal { // stdio makes no difference to it
			together = append(together, job{j.scene, false, []string{j.armed[0] + " hold"}})
		}
	}
	began, n := time.Now(), 0
	for len(together) > 0 {
		batch := together[:min(2*lanes, len(together))]
		together = together[len(batch):]
		c.held(batch, workers)
		n++
	}
	t.Logf("measured: containerd was killed %d times in %v", n, time.Since(began).Round(time.Second))
}

// held plays lives until the worker of each is held at a point, kills containerd, and lets all of them go on.
func (c *company) held(batch []job, workers bool) {
	restarted := make(chan struct{})
	lives := make([]*heldLife, len(batch))
	var players sync.WaitGroup
	for i, j := range batch {
		lives[i] = &heldLife{job: j, id: fmt.Sprintf("h%d", c.ids.Add(1)), over: make(chan struct{})}
		players.Go(func() { lives[i].play(c, restarted) })
	}
	var there []*heldLife
	for _, l := range lives {
		if err := l.await(c); err != nil {
			c.t.Errorf("%s, as %s: %v", l.job, l.id, err)
		} else {
			there = append(there, l)
		}
	}
	ctx, cancel := context.WithTimeout(c.h.Context(), wait.Limit(jobLimit))
	defer cancel()
	for _, l := range there { // so that nothing more is told to a containerd that does not live to pass it on
		err := c.signalWorker(l.id, unix.SIGSTOP)
		if err != nil {
			c.t.Errorf("%s, as %s: %v", l.job, l.id, err)
		}
	}
	err := errors.Join(c.h.Events.Flush(ctx, c.h.Client()), c.h.Kill(ctx))
	for _, l := range there {
		if workers {
			err = errors.Join(err, c.killWorker(ctx, l.id))
			continue
		}
		err = errors.Join(err, c.signalWorker(l.id, unix.SIGCONT), l.own.Release(ctx, l.job.points()[0]))
	}
	err = errors.Join(err, c.h.Start(ctx))
	close(restarted)
	players.Wait()
	if err != nil {
		c.t.Error(err)
	}
	for _, l := range lives {
		if l.err != nil {
			c.t.Errorf("%s, as %s: %v\n  again: %s", l.job, l.id, l.err, c.again(l.job.scene.Name+"/"+l.job.points()[0]))
		}
	}
}

// signalWorker sends the worker of a container a signal, if it has one.
func (c *company) signalWorker(id string, signal unix.Signal) error {
	worker, err := c.worker(id)
	if err != nil {
		return err
	}
	h, err := proc.Open(worker, proc.IsWorker)
	if err != nil {
		return gone(err)
	}
	defer h.Close()
	return gone(h.Signal(signal))
}

// heldLife is a life whose worker is held.
type heldLife struct {
	job  job
	id   string
	own  *harness.Crashes
	err  error
	over chan struct{} // closed with err set
}

func (l *heldLife) play(c *company, restarted chan struct{}) {
	defer close(l.over)
	if l.own, l.err = c.crashes.Group(l.id); l.err != nil {
		return
	}
	if l.err = errors.Join(l.own.Arm(l.job.armed...), l.own.Trace()); l.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.h.Context(), wait.Limit(jobLimit))
	defer cancel()
	l.err = l.job.scene.Play(ctx, scene.Stage{
		H: c.h, ID: l.id, Repeats: true, Restarts: true,
		Again: func(error) bool { <-restarted; return true },
		Pause: func() { l.pause(restarted) },
	})
}

// pause holds a life up whose point has fired: what was answered already, and what comes after, is not to be mixed up
// with containerd's end.
func (l *heldLife) pause(restarted chan struct{}) {
	if l.own.Times(l.job.points()[0]) > 0 {
		<-restarted
	}
}

// await waits until the life's worker is held, or the life is over without that.
func (l *heldLife) await(c *company) error {
	return wait.Until(c.h.Context(), jobLimit, "crash point "+strings.Join(l.job.armed, " "), func() error {
		select {
		case <-l.over:
			return wait.Never(errors.New("it is over without having been there"))
		default:
		}
		if l.own == nil || l.own.Times(l.job.points()[0]) == 0 {
			return errors.New("nobody is there yet")
		}
		return nil
	})
}
