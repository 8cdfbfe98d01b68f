// Package measure says in numbers what perdure costs and how long a killed
// worker is missed, beside the stock shim on the same machine in the same run.
// It asserts nothing about time or memory: `make test` prints the lines.
package measure

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

const testLimit = 3 * time.Minute

// execs is how many are run before memory is looked at again, and how many are
// timed.
const execs = 20

func TestMemory(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	perdure, stock := pair(ctx, t, h)
	tell(ctx, t, "idle with one container", perdure, stock)
	for i := range execs {
		for _, c := range []*harness.Container{perdure, stock} {
			_, err := c.Sh(ctx, fmt.Sprintf("e%d", i), "exit 0")
			harness.Check(t, err)
		}
	}
	tell(ctx, t, fmt.Sprintf("after %d execs", execs), perdure, stock)
}

// pair returns a container of each runtime.
func pair(ctx context.Context, t *testing.T, h *harness.Harness) (perdure, stock *harness.Container) {
	t.Helper()
	perdure, err := h.Run(ctx, "perdure", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	stock, err = h.Run(ctx, "stock", harness.Config{Args: harness.Sleep(), Runtime: harness.Stock})
	harness.Check(t, err)
	return perdure, stock
}

// tell prints the private memory of the processes that serve both containers.
func tell(ctx context.Context, t *testing.T, when string, perdure, stock *harness.Container) {
	t.Helper()
	keeper, err := perdure.Keeper()
	harness.Check(t, err)
	worker, err := perdure.Worker(ctx)
	harness.Check(t, err)
	shim, err := stock.Keeper()
	harness.Check(t, err)
	t.Logf("measured: private memory %s: keeper %s, worker %s; stock shim %s",
		when, memory(t, keeper), memory(t, worker), memory(t, shim))
}

func memory(t *testing.T, pid int) proc.Memory {
	t.Helper()
	m, err := proc.PrivateMemory(pid)
	harness.Check(t, err)
	return m
}

// TestTimeToTheNextAnswer kills workers that have lived for a while, of several
// shims in turn, and asks for State at once.
func TestTimeToTheNextAnswer(t *testing.T) {
	const shims, kills = 10, 50
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	var all []*harness.Container
	for i := range shims {
		c, err := h.Run(ctx, fmt.Sprintf("c%d", i), harness.Config{Args: harness.Sleep()})
		harness.Check(t, err)
		all = append(all, c)
	}
	var took []time.Duration
	for i := range kills {
		c := all[i%shims]
		harness.Check(t, awaitSettled(ctx, c))
		began := time.Now()
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
		_, err = c.Task.Status(ctx)
		harness.Check(t, err)
		took = append(took, time.Since(began))
	}
	t.Logf("measured: from kill -9 of the worker to the next answered State, %d times: %s", kills, spread(took))
}

// settled is the age from which on the keeper starts a worker's successor at
// once.
const settled = time.Second

func awaitSettled(ctx context.Context, c *harness.Container) error {
	worker, err := c.Worker(ctx)
	if err != nil {
		return err
	}
	return wait.Until(ctx, testLimit, "the worker to have lived for a second", func() error {
		age, err := proc.Age(worker)
		if err == nil && age <= settled {
			err = fmt.Errorf("it has lived for %v", age)
		}
		return err
	})
}

// TestExecLatency times whole execs, from Exec to Delete, of the two runtimes
// in turn.
func TestExecLatency(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	perdure, stock := pair(ctx, t, h)
	took := map[*harness.Container][]time.Duration{}
	for i := range execs + 1 {
		for _, c := range []*harness.Container{perdure, stock} {
			began := time.Now()
			_, err := c.Sh(ctx, fmt.Sprintf("e%d", i), "exit 0")
			harness.Check(t, err)
			if i > 0 { // the first one warms up
				took[c] = append(took[c], time.Since(began))
			}
		}
	}
	t.Logf("measured: an exec from Exec to Delete: perdure %s; stock %s; ratio of medians %.2f",
		spread(took[perdure]), spread(took[stock]), float64(percentile(took[perdure], 50))/float64(percentile(took[stock], 50)))
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v, max %v", short(percentile(all, 50)), short(percentile(all, 99)), short(slices.Max(all)))
}

func short(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// percentile returns the value that p of 100 are not above.
func percentile(all []time.Duration, p int) time.Duration {
	sorted := slices.SortedFunc(slices.Values(all), cmp.Compare[time.Duration])
	return sorted[(len(sorted)*p+99)/100-1]
}

// TestTerminalOutput times 7 MB through a terminal, of the two runtimes in turn.
func TestTerminalOutput(t *testing.T) {
	harness.NeedsPerdure(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	perdure, stock := pair(ctx, t, h)
	took := map[*harness.Container][]time.Duration{}
	for i := range 4 {
		for _, c := range []*harness.Container{perdure, stock} {
			began := time.Now()
			e, err := c.Exec(ctx, harness.ExecConfig{ID: fmt.Sprintf("t%d", i), Args: []string{"/bin/seq", "1000000"}, Terminal: true})
			harness.Check(t, err)
			_, err = e.Finish(ctx)
			harness.Check(t, err)
			if i > 0 { // the first one warms up
				took[c] = append(took[c], time.Since(began))
			}
		}
	}
	t.Logf("measured: 7 MB through a terminal: perdure %s; stock %s; ratio of medians %.2f",
		spread(took[perdure]), spread(took[stock]), float64(percentile(took[perdure], 50))/float64(percentile(took[stock], 50)))
}
