package cgroups

import (
	"context"
	"fmt"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
	"perdure/runtime"
)

const memoryLimit, pidsLimit = 96, 63

func resources() []oci.SpecOpts {
	return append(memory(memoryLimit), oci.WithPidsLimit(pidsLimit))
}

func metrics(ctx context.Context, c *harness.Container) (proto.Message, error) {
	m, err := c.Task.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	decoded, err := typeurl.UnmarshalAny(m.Data)
	if err != nil {
		return nil, err
	}
	message, ok := decoded.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("metrics are a %T", decoded)
	}
	return message, nil
}

// plausible checks that a container's metrics are its own.
func plausible(ctx context.Context, t *testing.T, c *harness.Container, processes bool) {
	t.Helper()
	m, err := metrics(ctx, c)
	if err != nil {
		t.Errorf("metrics: %v", err)
		return
	}
	var pids, maxPids, limit, used, cpu uint64
	switch m := m.(type) {
	case *v1.Metrics:
		pids, maxPids, limit, used, cpu = m.Pids.Current, m.Pids.Limit, m.Memory.Usage.Limit, m.Memory.Usage.Max, m.CPU.Usage.Total
	case *v2.Metrics:
		pids, maxPids, limit, used, cpu = m.Pids.Current, m.Pids.Limit, m.Memory.UsageLimit, m.Memory.Usage, m.CPU.UsageUsec
	default:
		t.Errorf("metrics are a %T", m)
	}
	if maxPids != pidsLimit || limit != memoryLimit<<20 {
		t.Errorf("limits of %d pids and %d bytes, want %d and %d MiB", maxPids, limit, pidsLimit, memoryLimit)
	}
	if (pids > 0) != processes || cpu == 0 || processes && (used == 0 || used > limit) {
		t.Errorf("it has %d processes, used %d bytes and %d of CPU: %v", pids, used, cpu, m)
	}
}

// TestStats: a container has metrics from its create to its delete, in whatever worker, but not in
// the state of one that is gone.
func TestStats(t *testing.T) {
	needsMemory(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Create(ctx, "measured", harness.Config{Args: harness.Sleep(), Spec: resources()})
	harness.Check(t, err)
	plausible(ctx, t, c, true)
	harness.Check(t, c.Task.Start(ctx))
	plausible(ctx, t, c, true)
	harness.Check(t, c.Task.Pause(ctx))
	plausible(ctx, t, c, true)
	if c.Runtime != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
		plausible(ctx, t, c, true)
	}
	harness.Check(t, c.Task.Resume(ctx))
	harness.Check(t, c.SignalInit(9))
	_, err = c.Wait(ctx)
	harness.Check(t, err)
	plausible(ctx, t, c, false)
	if c.Runtime != harness.Stock {
		_, err := c.KillWorker(ctx)
		harness.Check(t, err)
		plausible(ctx, t, c, false)
	}
	task := c.Task
	harness.Check(t, c.DeleteTask(ctx))
	if m, err := task.Metrics(ctx); !errdefs.IsNotFound(err) {
		t.Errorf("of a deleted task: %v, %v", m, err)
	}
}

// TestStatsAreTheStockShims: of one container, frozen so that nothing moves, ours are read as the stock
// shim tells them, field for field.
func TestStatsAreTheStockShims(t *testing.T) {
	needsMemory(t)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "stock", harness.Config{Args: harness.Sleep(), Spec: resources(), Runtime: harness.Stock})
	harness.Check(t, err)
	r, err := c.Sh(ctx, "work", "dd if=/dev/zero of=/tmp/file bs=1M count=8; sync; cat /tmp/file >/dev/null; sh -c 'sleep 0.01'")
	if err != nil || r.Code != 0 {
		t.Errorf("the exec ended with %d, %v", r.Code, err)
	}
	harness.Check(t, c.Task.Pause(ctx))
	pid := int(c.Task.Pid())
	start, err := runtime.StartTime(pid)
	harness.Check(t, err)
	cgroup, err := runtime.CgroupOf(pid, start)
	harness.Check(t, err)
	// The kernel goes on with what was written: both are read until they are of one moment.
	err = wait.Until(ctx, limit, "metrics that are the same", func() error {
		theirs, err := metrics(ctx, c)
		if err != nil {
			return wait.Never(err)
		}
		ours, err := cgroup.Stats()
		if err != nil {
			return wait.Never(err)
		}
		forgetMoments(theirs)
		forgetMoments(ours)
		if !proto.Equal(theirs, ours) {
			return fmt.Errorf("the stock shim's are\n%v\nours\n%v", theirs, ours)
		}
		return nil
	})
	harness.Check(t, err)
	harness.Check(t, c.Task.Resume(ctx))
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Running {
		t.Errorf("it is %v, %v", status.Status, err)
	}
}

// forgetMoments clears what changes by itself, pressure, and what has no order, huge page sizes.
func forgetMoments(m proto.Message) {
	switch m := m.(type) {
	case *v1.Metrics:
		m.Hugetlb = nil
	case *v2.Metrics:
		m.Hugetlb = nil
		m.CPU.PSI, m.Memory.PSI, m.Io.PSI = nil, nil, nil
	}
}
