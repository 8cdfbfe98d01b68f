package kill

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

const (
	eventLimit = 20 * time.Second
	testLimit  = 12 * time.Minute
	clients    = 3
)

// One shim serves three containers that stay and those that come and go.
func TestKillsInAPod(t *testing.T) {
	test(t, func(ctx context.Context, l *load) []*harness.Container {
		l.pod = "pod"
		first := l.keep(ctx, "pod", harness.Config{Args: harness.Sleep()})
		return []*harness.Container{
			first,
			l.keep(ctx, "terminal", harness.Config{Args: harness.Sleep(), Pod: "pod", Terminal: true}),
			l.keep(ctx, "shared", harness.Config{Args: harness.Sleep(), Pod: "pod", SharePID: int(first.Task.Pid())}),
		}
	})
}

// Every container has a shim of its own.
func TestKillsInSingleContainers(t *testing.T) {
	test(t, func(ctx context.Context, l *load) []*harness.Container {
		return []*harness.Container{l.keep(ctx, "single", harness.Config{Args: harness.Sleep()})}
	})
}

func test(t *testing.T, prepare func(context.Context, *load) []*harness.Container) {
	harness.NeedsPerdure(t)
	seed := harness.Seed(t)
	h := harness.New(t)
	ctx, cancel := context.WithTimeout(h.Context(), wait.Limit(testLimit))
	defer cancel()
	l := newLoad(t, h)
	stay := prepare(ctx, l)
	if len(stay) == 0 {
		return
	}
	var workers sync.WaitGroup
	for i := range clients {
		workers.Go(func() { l.work(ctx, harness.Random(seed, uint64(i)), stay) })
	}
	count := harness.Number(t, "PERDURE_TEST_KILLS", 200)
	began := time.Now()
	if err := l.killWorkers(ctx, harness.Random(seed, clients), count); err != nil {
		t.Error(err)
	}
	close(l.done)
	workers.Wait()
	if err := l.failure(); err != nil {
		t.Fatal(err)
	}
	t.Logf("measured: %d kills in %v, %d client calls, %d execs and containers, %d events twice",
		count, time.Since(began).Round(time.Second), l.steps.Load(), len(l.ended), h.Events.Duplicates())
	l.verify(ctx, stay)
}

// verify compares what is left and what was told with what clients learned.
func (l *load) verify(ctx context.Context, stay []*harness.Container) {
	for _, c := range stay {
		status, err := c.Task.Status(ctx)
		if err != nil || status.Status != client.Running {
			l.t.Errorf("%s is %q (%v) after the kills", c.ID, status.Status, err)
		}
		if err := c.Load(ctx); err != nil || int(c.Task.Pid()) != l.lives[c.ID].Pid {
			l.t.Errorf("%s has pid %d (%v), it was %d", c.ID, c.Task.Pid(), err, l.lives[c.ID].Pid)
		}
	}
	for id, life := range l.lives {
		if err := l.h.Events.Check(eventLimit, *life); err != nil {
			l.t.Errorf("events of %s: %v", id, err)
		}
	}
	started, err := l.started()
	if err != nil {
		l.t.Error(err)
	}
	for token := range l.ended {
		if started[token] != 1 {
			l.t.Errorf("process %s was started %d times", token, started[token])
		}
	}
}
