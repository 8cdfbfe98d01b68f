package kill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// killWorkers kills the worker of a random shim count times. When is chosen by
// the load's progress as well as by time: some faults are open for
// microseconds after a call, others in the middle of runc.
func (l *load) killWorkers(ctx context.Context, random *rand.Rand, count int) error {
	for killed := 0; killed < count; {
		if err := l.failure(); err != nil {
			return nil // told by whoever waits for the load
		}
		if err := l.pause(ctx, random); err != nil {
			return err
		}
		c := l.victim(random)
		_, err := c.KillWorker(ctx)
		switch {
		case err == nil:
			killed++
		case !l.leaving(c):
			return fmt.Errorf("after %d kills: %w", killed, err)
		} // else the shim has left with its container
	}
	return nil
}

// pause lets the load go on a little: mostly until some calls have returned,
// so that lives are long enough to get work done in; a keeper slows down for
// workers that die young.
func (l *load) pause(ctx context.Context, random *rand.Rand) error {
	if random.IntN(4) == 0 {
		timer := time.NewTimer(time.Duration(random.Int64N(int64(150 * time.Millisecond))))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	until := l.steps.Load() + random.Int64N(10)
	return wait.Until(ctx, opLimit, "the load to go on", func() error {
		if l.steps.Load() < until && l.failure() == nil {
			return errors.New("no client call has returned since")
		}
		return nil
	})
}

// victim returns a random container that is alive.
func (l *load) victim(random *rand.Rand) *harness.Container {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := random.IntN(len(l.alive))
	for _, c := range l.alive {
		if n == 0 {
			return c
		}
		n--
	}
	panic("kill: no container is alive")
}

func (l *load) leaving(c *harness.Container) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leave[c.ID]
}
