package soak

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/harness"
)

// access is the clients' way to containerd while somebody kills and restarts it.
type access struct {
	h *harness.Harness

	mu   sync.Mutex
	c    *client.Client // nil while it is down
	life int            // how often it was started
	up   chan struct{}  // closed when it is up again
}

func newAccess(h *harness.Harness) *access {
	return &access{h: h, c: h.Client(), up: make(chan struct{})}
}

// get returns the client of the running containerd, and which one of its lives that is. It waits for it while it is down.
func (a *access) get(ctx context.Context) (*client.Client, int, error) {
	for {
		a.mu.Lock()
		c, life, up := a.c, a.life, a.up
		a.mu.Unlock()
		if c != nil {
			return c, life, nil
		}
		select {
		case <-up:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("containerd is still down: %w", ctx.Err())
		}
	}
}

// tasks is get for the Task API.
func (a *access) tasks(ctx context.Context) (tasks.TasksClient, int, error) {
	c, life, err := a.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	return c.TaskService(), life, nil
}

// died says whether that life of containerd is over.
func (a *access) died(life int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.c == nil || a.life != life
}

// restart kills containerd and starts it again after a while.
func (a *access) restart(ctx context.Context, down func()) error {
	a.mu.Lock()
	a.c = nil
	a.mu.Unlock()
	if err := a.h.Kill(ctx); err != nil {
		return err
	}
	down()
	if err := a.h.Start(ctx); err != nil {
		return fmt.Errorf("start containerd again: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.c, a.life = a.h.Client(), a.life+1
	close(a.up)
	a.up = make(chan struct{})
	return nil
}

// pause waits d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// bundlesOnMemory has containerd's state directory, which bundles and journals are in, on a file system of its own, so
// that it can be filled. There are no tasks yet.
func bundlesOnMemory(ctx context.Context, h *harness.Harness, mount func(dir string) error) error {
	if err := h.Stop(ctx); err != nil {
		return err
	}
	if err := mount(h.State()); err != nil {
		return errors.Join(err, h.Start(ctx))
	}
	return h.Start(ctx)
}
