package cgroups

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/harness"
)

// TestLimitHitAtOnce is case 10: an init that is killed in its first milliseconds. Its OOM
// is told before its exit, each time.
func TestLimitHitAtOnce(t *testing.T) {
	const atOnce = 4
	needsMemory(t)
	times := harness.Number(t, "PERDURE_TEST_OOMS", 100)
	h := harness.New(t)
	ctx := h.Within(t, 3*testLimit)
	var all sync.WaitGroup
	for worker := range atOnce {
		all.Go(func() {
			for i := worker; i < times; i += atOnce {
				if err := killedAtOnce(ctx, h, fmt.Sprintf("eater%d", i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func killedAtOnce(ctx context.Context, h *harness.Harness, id string) error {
	c, err := h.Run(ctx, id, harness.Config{Args: harness.Shell(eat), Spec: memory(12)})
	if err != nil {
		return err
	}
	exit, err := c.Wait(ctx)
	if err != nil {
		return err
	}
	if exit.Code != 137 {
		return fmt.Errorf("%s ended with %d, want 137", id, exit.Code)
	}
	if err := c.Remove(ctx); err != nil {
		return err
	}
	_, err = h.Events.Expect(limit, id, "create", "start", "oom", "exit", "delete")
	return err
}

// TestExecOnly: the OOM of an exec, and that of a process which is nobody's, is told once, and
// the init lives.
func TestExecOnly(t *testing.T) {
	needsMemory(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "host", harness.Config{Args: harness.Sleep(), Spec: memory(24)})
	harness.Check(t, err)
	r, err := c.Sh(ctx, "e1", eat)
	if err != nil || r.Code != 137 {
		t.Errorf("the exec ended with %d, %v, want 137", r.Code, err)
	}
	harness.Check(t, told(h, "host", 1))
	r, err = c.Sh(ctx, "e2", eatInChild+"echo $?")
	if err != nil || r.Code != 0 || r.Stdout != "137\n" {
		t.Errorf("the exec whose child ate ended with %d and said %q, %v", r.Code, r.Stdout, err)
	}
	harness.Check(t, told(h, "host", 2))
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Running {
		t.Errorf("the init is %v, %v", status.Status, err)
	}
	harness.Check(t, c.DeleteTask(ctx))
	_, err = h.Events.Await(limit, "host", "delete")
	harness.Check(t, err)
	// The second one is told while its exec goes on, or by its exit at the latest.
	got := names(t, h, "host")
	i := slices.Index(got, "exec-added e2")
	if want := strings.Fields("create start exec-added:e1 exec-started:e1 oom exit:e1"); i < 0 || !slices.Equal(got[:i], spaced(want)) {
		t.Errorf("the events before the second exec are %v, want %v", got, want)
	}
	if n := count(got, "oom"); n != 2 {
		t.Errorf("%d OOMs in %v, want 2", n, got)
	}
	if oom, exit := slices.Index(got[max(i, 0):], "oom"), slices.Index(got[max(i, 0):], "exit"); oom < 0 || oom > exit {
		t.Errorf("the second OOM comes late: %v", got)
	}
}

func spaced(names []string) []string {
	for i := range names {
		names[i] = strings.Replace(names[i], ":", " ", 1)
	}
	return names
}

func count(names []string, of string) (n int) {
	for _, name := range names {
		if name == of {
			n++
		}
	}
	return n
}

// TestKilledOverAnOOM ends the worker just before and just after it has journaled one: it is
// told, before the exit it explains.
func TestKilledOverAnOOM(t *testing.T) {
	needsMemory(t)
	h, crashes := harness.NewWithCrashes(t)
	for _, point := range []string{"oom.before-record", "oom.after-record", "exit.before-record", "exit.after-record"} {
		t.Run(point, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			id := strings.ReplaceAll(point, ".", "-")
			harness.Check(t, crashes.Arm(point))
			c, err := h.Run(ctx, id, harness.Config{Args: harness.Shell(eat), Spec: memory(12)})
			harness.Check(t, err)
			if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
				t.Errorf("it ended with %d, %v", exit.Code, err)
			}
			harness.Check(t, crashes.Fired(point))
			harness.Check(t, c.Remove(ctx))
			_, err = h.Events.Await(limit, id, "delete")
			harness.Check(t, err)
			if got, want := names(t, h, id), []string{"create", "start", "oom", "exit", "delete"}; !slices.Equal(got, want) {
				t.Errorf("its events are %v, want %v", got, want)
			}
		})
	}
	for _, point := range []string{"oom.before-record", "oom.after-record", "exec-exit.before-record"} {
		t.Run("exec/"+point, func(t *testing.T) {
			ctx := h.Within(t, testLimit)
			id := "exec-" + strings.ReplaceAll(point, ".", "-")
			c, err := h.Run(ctx, id, harness.Config{Args: harness.Sleep(), Spec: memory(24)})
			harness.Check(t, err)
			harness.Check(t, crashes.Arm(point))
			if r, err := c.Sh(ctx, "e", eat); err != nil || r.Code != 137 {
				t.Errorf("the exec ended with %d, %v", r.Code, err)
			}
			harness.Check(t, crashes.Fired(point))
			harness.Check(t, c.Remove(ctx))
			_, err = h.Events.Await(limit, id, "delete")
			harness.Check(t, err)
			want := []string{"create", "start", "exec-added e", "exec-started e", "oom", "exit e", "exit", "delete"}
			if got := names(t, h, id); !slices.Equal(got, want) {
				t.Errorf("its events are %v, want %v", got, want)
			}
		})
	}
}

// eater is a container whose init has a child eat each time it may. It has room for its runtime: with less, version 2 notifies
// of a limit that is reached by runc's init already, and the worker does not rest.
func eater(ctx context.Context, t *testing.T, h *harness.Harness, id string) (*harness.Container, *harness.Gates) {
	t.Helper()
	gates, err := h.NewGates("eat")
	harness.Check(t, err)
	c, err := h.Run(ctx, id, harness.Config{
		Args:   harness.Shell("trap 'exit 143' TERM; while :; do " + gates.Await("eat") + eatInChild + "echo eaten; done"),
		Mounts: []specs.Mount{gates.Mount()}, Spec: memory(64),
	})
	harness.Check(t, err)
	return c, gates
}

// TestWithoutWorker: an OOM of a process that no exit will tell of, while the worker rests, or is
// being killed, is told.
func TestWithoutWorker(t *testing.T) {
	harness.NeedsPerdure(t)
	needsMemory(t)
	t.Run("resting", func(t *testing.T) {
		h := harness.New(t, "PERDURE_IDLE_MS=100")
		ctx := h.Within(t, testLimit)
		c, gates := eater(ctx, t, h, "asleep")
		// Version 2 notifies of a limit that is merely reached, too, and then no worker rests for five minutes.
		_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
		rounds := 3
		if err == nil {
			rounds = 1
		}
		for i := range rounds {
			harness.Check(t, c.AwaitRest(ctx))
			harness.Check(t, gates.Open("eat"))
			harness.Check(t, told(h, "asleep", i+1))
		}
		if rounds > 1 {
			harness.Check(t, c.AwaitRest(ctx))
		}
		if got, want := names(t, h, "asleep"), []string{"create", "start", "oom"}; !slices.Equal(got, want) {
			t.Errorf("its events are %v, want %v", got, want)
		}
		if all, err := h.Events.Of("asleep"); err != nil || len(all) != 2+rounds {
			t.Errorf("no worker was killed and there are %v, %v", all, err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		h := harness.New(t)
		ctx := h.Within(t, testLimit)
		c, gates := eater(ctx, t, h, "watched")
		for i := range 20 {
			var killed sync.WaitGroup
			killed.Go(func() {
				if _, err := c.KillWorker(ctx); err != nil {
					t.Error(err)
				}
			})
			before, err := h.Events.Of("watched")
			harness.Check(t, err)
			harness.Check(t, gates.Open("eat"))
			killed.Wait()
			harness.Check(t, c.Stdout.Await(limit, strings.Repeat("eaten\n", i+1)))
			harness.Check(t, told(h, "watched", count(stringsOf(before), "oom")+1))
		}
		if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Running {
			t.Errorf("the init is %v, %v", status.Status, err)
		}
	})
}

func stringsOf[E fmt.Stringer](all []E) []string {
	var out []string
	for _, e := range all {
		out = append(out, e.String())
	}
	return out
}

// TestNoLimit: whoever is killed otherwise has had no OOM.
func TestNoLimit(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "plain", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	harness.Check(t, c.SignalInit(9))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 137 {
		t.Errorf("it ended with %d, %v", exit.Code, err)
	}
	harness.Check(t, c.Remove(ctx))
	_, err = h.Events.Expect(limit, "plain", "create", "start", "exit", "delete")
	harness.Check(t, err)
}
