package soak

import (
	"sync/atomic"
	"time"
)

// clock gives each thing that happens in a run a tick of its own: microseconds since it began, or one more than the last.
type clock struct {
	began time.Time
	last  atomic.Uint64
}

func (c *clock) tick() uint64 {
	now := uint64(time.Since(c.began).Microseconds())
	for {
		last := c.last.Load()
		next := max(now, last+1)
		if c.last.CompareAndSwap(last, next) {
			return next
		}
	}
}

// since is a tick as time from the begin of the run.
func since(tick uint64) time.Duration { return time.Duration(tick) * time.Microsecond }
