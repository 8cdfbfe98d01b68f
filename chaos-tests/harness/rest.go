package harness

import (
	"context"
	"fmt"
	"time"

	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// restLimit is how long a worker without work may take to leave.
const restLimit = 20 * time.Second

// restFor is how long no worker must have been seen: one that leaves is followed by
// another where a Wait came so late that it may not have read it.
const restFor = 500 * time.Millisecond

// AwaitRest waits until the container's keeper needs no worker. Workers leave only in a
// harness that was made with a PERDURE_IDLE_MS of the test's own.
func (c *Container) AwaitRest(ctx context.Context) error {
	keeper, err := c.Keeper()
	if err != nil {
		return err
	}
	var since time.Time
	return wait.Until(ctx, restLimit, "the worker of "+c.Group+" to leave", func() error {
		workers, err := proc.Select(func(p proc.Process) bool { return p.Parent == keeper && proc.IsWorker(p) })
		switch {
		case err != nil:
			return err
		case len(workers) > 0:
			since = time.Time{}
			return fmt.Errorf("there is %v", workers)
		case since.IsZero():
			since = time.Now()
		}
		if rests := time.Since(since); rests < restFor {
			return fmt.Errorf("it has left %v ago", rests)
		}
		return nil
	})
}
