package runtime

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

func memoryLimit(bytes int) change {
	return func(config map[string]any) {
		config["linux"].(map[string]any)["resources"] = map[string]any{
			"memory": map[string]any{"limit": bytes}, "pids": map[string]any{"limit": 77},
		}
	}
}

// What is told of a live container is what its files say, whatever version the host has;
// a stopped one's cgroup still tells, until it is deleted.
func TestStats(t *testing.T) {
	const limit = 64 << 20
	c := newContainer(t, memoryLimit(limit))
	stdio, pid := c.run(Stdio{}, IOOptions{Direct: true})
	start, err := StartTime(pid)
	must(t, err)
	g, err := CgroupOf(pid, start)
	must(t, err)
	m, err := g.Stats()
	must(t, err)
	check := func(m proto.Message) {
		t.Helper()
		var pids, maxPids, memory uint64
		switch m := m.(type) {
		case *v1.Metrics:
			pids, maxPids, memory = m.Pids.Current, m.Pids.Limit, m.Memory.Usage.Limit
			if m.CPU.Usage.Total == 0 || m.Memory.TotalPgFault == 0 {
				t.Errorf("it has used nothing: %v", m)
			}
		case *v2.Metrics:
			pids, maxPids, memory = m.Pids.Current, m.Pids.Limit, m.Memory.UsageLimit
			if m.CPU.UsageUsec == 0 || m.Memory.Pgfault == 0 {
				t.Errorf("it has used nothing: %v", m)
			}
		}
		text, err := os.ReadFile(filepath.Join(g.dir("pids"), "pids.current"))
		must(t, err)
		if strings.TrimSpace(string(text)) != strconv.FormatUint(pids, 10) || maxPids != 77 || memory != limit {
			t.Errorf("pids %d of %d, memory limit %d; pids.current says %s", pids, maxPids, memory, text)
		}
	}
	check(m)
	must(t, c.Kill(c.ctx, c.intent("kill"), 9))
	reap(t, pid)
	stdio.Exited()
	if g, err := CgroupOf(pid, start); !errdefs.IsNotFound(err) {
		t.Errorf("of a process that has ended: %v, %v", g, err)
	}
	again, err := ParseCgroup(g.String())
	must(t, err)
	m, err = again.Stats()
	must(t, err)
	check(m)
	must(t, c.Delete(c.ctx, c.intent("delete"), true))
	if m, err := again.Stats(); !errdefs.IsNotFound(err) {
		t.Errorf("of a cgroup that is gone: %v, %v", m, err)
	}
}

func fixture(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func TestStatsOfVersion1(t *testing.T) {
	dir := fixture(t, map[string]string{
		"pids.current": "3\n", "pids.max": "max\n",
		"cpu.stat":      "nr_periods 4\nnr_throttled 2\nthrottled_time 500\n",
		"cpuacct.usage": "123456789\n", "cpuacct.usage_percpu": "100 200 \n", "cpuacct.stat": "user 7\nsystem 5\n",
		"memory.stat":           "cache 1\nrss 2\nhierarchical_memory_limit 3\ntotal_rss 4\nnr_unheard_of 9\n",
		"memory.oom_control":    "oom_kill_disable 1\nunder_oom 0\noom_kill 6\n",
		"memory.usage_in_bytes": "10\n", "memory.max_usage_in_bytes": "11\n", "memory.failcnt": "12\n", "memory.limit_in_bytes": "13\n",
		"memory.memsw.limit_in_bytes":          "-1\n",
		"blkio.throttle.io_serviced":           "254:0 Read 1\n254:0 Total 1\nTotal 1\n",
		"blkio.throttle.io_service_bytes":      "254:0 Read 4096\nTotal 4096\n",
		"rdma.current":                         "mlx4_0 hca_handle=2 hca_object=2000\n",
		"rdma.max":                             "mlx4_0 hca_handle=3 hca_object=max\n",
		"hugetlb.2MB.usage_in_bytes":           "2097152\n",
		"memory.kmem.tcp.max_usage_in_bytes":   "14\n",
		"blkio.io_service_bytes_recursive.not": "",
	})
	dirs := map[string]string{}
	for _, c := range []string{"cpu", "cpuacct", "pids", "memory", "blkio", "rdma"} {
		dirs[c] = dir
	}
	m, err := Cgroup{dirs: dirs}.Stats()
	must(t, err)
	want := &v1.Metrics{
		Pids: &v1.PidsStat{Current: 3},
		CPU: &v1.CPUStat{
			Usage:      &v1.CPUUsage{Total: 123456789, User: 70_000_000, Kernel: 50_000_000, PerCPU: []uint64{100, 200}},
			Throttling: &v1.Throttle{Periods: 4, ThrottledPeriods: 2, ThrottledTime: 500},
		},
		Memory: &v1.MemoryStat{
			Cache: 1, RSS: 2, HierarchicalMemoryLimit: 3, TotalRSS: 4,
			Usage: &v1.MemoryEntry{Usage: 10, Max: 11, Failcnt: 12, Limit: 13},
			Swap:  &v1.MemoryEntry{}, Kernel: &v1.MemoryEntry{}, KernelTCP: &v1.MemoryEntry{Max: 14},
		},
		MemoryOomControl: &v1.MemoryOomControl{OomKillDisable: 1, OomKill: 6},
		Blkio: &v1.BlkIOStat{
			IoServicedRecursive:     []*v1.BlkIOEntry{{Op: "Read", Major: 254, Value: 1}, {Op: "Total", Major: 254, Value: 1}},
			IoServiceBytesRecursive: []*v1.BlkIOEntry{{Op: "Read", Major: 254, Value: 4096}},
		},
		Rdma: &v1.RdmaStat{
			Current: []*v1.RdmaEntry{{Device: "mlx4_0", HcaHandles: 2, HcaObjects: 2000}},
			Limit:   []*v1.RdmaEntry{{Device: "mlx4_0", HcaHandles: 3, HcaObjects: math.MaxUint32}},
		},
	}
	for _, e := range append(want.Blkio.IoServicedRecursive, want.Blkio.IoServiceBytesRecursive...) {
		e.Device = blockDevice(254, 0) // whatever it is here
	}
	if !proto.Equal(m, want) {
		t.Errorf("read %v\nwant %v", m, want)
	}
}

func TestStatsOfVersion2(t *testing.T) {
	dir := fixture(t, map[string]string{
		"pids.current": "3\n", "pids.max": "max\n",
		"cpu.stat":       "usage_usec 9\nuser_usec 5\nsystem_usec 4\nnr_periods 1\nnr_throttled 2\nthrottled_usec 3\nnr_bursts 6\nburst_usec 7\ncore_sched.force_idle_usec 0\n",
		"cpu.pressure":   "some avg10=1.50 avg60=0.25 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=11\n",
		"memory.stat":    "anon 1\nfile 2\nkernel_stack 3\nslab 4\npgfault 5\nworkingset_refault_anon 9\nthp_collapse_alloc 6\n",
		"memory.current": "10\n", "memory.max": "20\n", "memory.peak": "15\n",
		"memory.swap.current": "0\n", "memory.swap.max": "max\n",
		"memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\nsock_throttled 7\n",
		"io.stat":       "254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n7:0\n",
		"rdma.current":  "mlx4_0 hca_handle=2 hca_object=2000\n", "rdma.max": "mlx4_0 hca_handle=max hca_object=1\n",
	})
	m, err := Cgroup{dirs: map[string]string{unified: dir}}.Stats()
	must(t, err)
	got := m.(*v2.Metrics)
	got.Hugetlb = nil // the sizes are those of this kernel
	want := &v2.Metrics{
		Pids: &v2.PidsStat{Current: 3, Limit: math.MaxUint64},
		CPU: &v2.CPUStat{
			UsageUsec: 9, UserUsec: 5, SystemUsec: 4, NrPeriods: 1, NrThrottled: 2, ThrottledUsec: 3, NrBursts: 6, BurstUsec: 7,
			PSI: &v2.PSIStats{Some: &v2.PSIData{Avg10: 1.5, Avg60: 0.25, Total: 12}, Full: &v2.PSIData{Total: 11}},
		},
		Memory: &v2.MemoryStat{
			Anon: 1, File: 2, KernelStack: 3, Slab: 4, Pgfault: 5, ThpCollapseAlloc: 6,
			Usage: 10, UsageLimit: 20, MaxUsage: 15, SwapLimit: math.MaxUint64,
		},
		MemoryEvents: &v2.MemoryEvents{Low: 1, High: 2, Max: 3, Oom: 4, OomKill: 5, OomGroupKill: 6},
		Io:           &v2.IOStat{Usage: []*v2.IOEntry{{Major: 254, Rbytes: 1, Wbytes: 2, Rios: 3, Wios: 4}}},
		Rdma: &v2.RdmaStat{
			Current: []*v2.RdmaEntry{{Device: "mlx4_0", HcaHandles: 2, HcaObjects: 2000}},
			Limit:   []*v2.RdmaEntry{{Device: "mlx4_0", HcaHandles: math.MaxUint32, HcaObjects: 1}},
		},
	}
	if !proto.Equal(got, want) {
		t.Errorf("read %v\nwant %v", got, want)
	}
}

// A file that is not what the kernel writes is an error, never a number that is made up.
func TestStatsOfGarbage(t *testing.T) {
	dir := fixture(t, map[string]string{"memory.stat": "anon many\n"})
	if m, err := (Cgroup{dirs: map[string]string{unified: dir}}).Stats(); err == nil || !strings.Contains(err.Error(), "memory.stat") {
		t.Errorf("%v, %v", m, err)
	}
	if m, err := (Cgroup{dirs: map[string]string{unified: filepath.Join(dir, "gone")}}).Stats(); !errdefs.IsNotFound(err) {
		t.Errorf("%v, %v", m, err)
	}
}
