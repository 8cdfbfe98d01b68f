package main

import (
	"context"
	"path/filepath"
	"time"

	"perdure/chaos-tests/proc"
)

// killWorkers ends every worker of perdure with SIGKILL, each interval, until
// ctx ends, and returns how many it hit. No process but the run's can be seen
// in its pid namespace.
func killWorkers(ctx context.Context, interval time.Duration) (kills int) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return kills
		case <-tick.C:
		}
		workers, err := proc.Select(isPerdure)
		if err != nil {
			continue // /proc could not be listed: the next tick looks again
		}
		for _, w := range workers {
			if proc.Kill(ctx, w.Pid, isPerdure) == nil {
				kills++
			}
		}
	}
}

// isPerdure reports whether p is a worker that a keeper started.
func isPerdure(p proc.Process) bool {
	if !proc.IsWorker(p) || filepath.Base(p.Args[0]) != "perdure" {
		return false
	}
	parent, err := proc.Read(p.Parent)
	return err == nil && len(parent.Args) > 0 && parent.Args[len(parent.Args)-1] == "keeper"
}
