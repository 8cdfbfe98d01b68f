// Package wait polls for conditions that nothing announces. It never waits
// longer than it was told to, and its error says what was awaited.
package wait

import (
	"context"
	"fmt"
	"time"
)

// interval is the pause between two looks. Short, since a look is cheap and
// most conditions hold within a few milliseconds.
const interval = 3 * time.Millisecond

// Until returns nil as soon as cond does, and an error that names what was
// awaited, with the last reason given by cond, once limit or ctx has run out.
// cond is always asked at least once.
func Until(ctx context.Context, limit time.Duration, what string, cond func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited up to %v for %s: %w", limit, what, err)
		case <-tick.C:
		}
	}
}
