// Package wait polls for conditions that nothing announces. It never waits
// longer than it was told to, and its error says what was awaited.
package wait

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// interval is the pause between two looks. Short, since a look is cheap and
// most conditions hold within a few milliseconds; on a slow machine a look is
// not cheap, and takes the processor from what is awaited.
const interval = 3 * time.Millisecond

// Limit stretches a time limit that was chosen for a machine of usual speed by
// PERDURE_TEST_SLOW, a whole number: emulated machines are ten times slower.
// Until does it by itself. Times that are part of what is tested stay.
func Limit(d time.Duration) time.Duration { return d * slow() }

var slow = sync.OnceValue(func() time.Duration {
	text := os.Getenv("PERDURE_TEST_SLOW")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		panic(fmt.Sprintf("PERDURE_TEST_SLOW is %q: it must be a whole number from 1", text))
	}
	return time.Duration(n)
})

// never marks an error that more waiting does not help against.
type never struct{ error }

func (n never) Unwrap() error { return n.error }

// Never returns err in a form that ends Until at once.
func Never(err error) error { return never{err} }

// Until returns nil as soon as cond does, and an error that names what was
// awaited, with the last reason given by cond, once Limit(limit) or ctx has run out or
// cond has returned an error made by Never. cond is always asked at least once.
func Until(ctx context.Context, limit time.Duration, what string, cond func() error) error {
	limit = Limit(limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(Limit(interval))
	defer tick.Stop()
	for {
		err := cond()
		if err == nil {
			return nil
		}
		if errors.As(err, new(never)) {
			return fmt.Errorf("waited for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited up to %v for %s: %w", limit, what, err)
		case <-tick.C:
		}
	}
}
