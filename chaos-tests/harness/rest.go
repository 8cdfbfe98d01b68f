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

// AwaitRest waits until the container's keeper has no worker. Workers leave only in a
// harness that was made with a PERDURE_IDLE_MS of the test's own.
func (c *Container) AwaitRest(ctx context.Context) error {
	keeper, err := c.Keeper()
	if err != nil {
		return err
	}
	return wait.Until(ctx, restLimit, "the worker of "+c.Group+" to leave", func() error {
		workers, err := proc.Select(func(p proc.Process) bool { return p.Parent == keeper && proc.IsWorker(p) })
		if err == nil && len(workers) > 0 {
			err = fmt.Errorf("there is %v", workers)
		}
		return err
	})
}
