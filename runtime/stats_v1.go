package runtime

import (
	"fmt"
	"os"
	"strings"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
)

// clockTick is the unit of cpuacct.stat in nanoseconds: USER_HZ is 100 on every
// architecture Linux and Go share.
const clockTick = 1e9 / 100

// metrics1 reads the directories of version 1 hierarchies. A limit of "max" is told as 0,
// as containerd/cgroups does.
func (f *files) metrics1(dirs map[string]string) *v1.Metrics {
	m := &v1.Metrics{CPU: f.cpu1(dirs["cpu"], dirs["cpuacct"])}
	if dir := dirs["pids"]; dir != "" {
		m.Pids = &v1.PidsStat{Current: f.number(dir, "pids.current", 0), Limit: f.number(dir, "pids.max", 0)}
	}
	if dir := dirs["memory"]; dir != "" {
		m.Memory, m.MemoryOomControl = f.memory1(dir)
	}
	if dir := dirs["blkio"]; dir != "" {
		m.Blkio = f.blkio1(dir)
	}
	if dir := dirs["hugetlb"]; dir != "" {
		for _, size := range hugePageSizes() {
			m.Hugetlb = append(m.Hugetlb, &v1.HugetlbStat{
				Pagesize: size,
				Usage:    f.number(dir, "hugetlb."+size+".usage_in_bytes", 0),
				Max:      f.number(dir, "hugetlb."+size+".max_usage_in_bytes", 0),
				Failcnt:  f.number(dir, "hugetlb."+size+".failcnt", 0),
			})
		}
	}
	if dir := dirs["rdma"]; dir != "" {
		m.Rdma = &v1.RdmaStat{Current: f.rdma1(dir, "rdma.current"), Limit: f.rdma1(dir, "rdma.max")}
	}
	return m
}

func (f *files) cpu1(cpu, cpuacct string) *v1.CPUStat {
	s := &v1.CPUStat{Throttling: &v1.Throttle{}, Usage: &v1.CPUUsage{}}
	f.pairs(cpu, "cpu.stat", map[string]*uint64{
		"nr_periods":     &s.Throttling.Periods,
		"nr_throttled":   &s.Throttling.ThrottledPeriods,
		"throttled_time": &s.Throttling.ThrottledTime,
	})
	s.Usage.Total = f.number(cpuacct, "cpuacct.usage", 0)
	f.pairs(cpuacct, "cpuacct.stat", map[string]*uint64{"user": &s.Usage.User, "system": &s.Usage.Kernel})
	s.Usage.User *= clockTick
	s.Usage.Kernel *= clockTick
	text, _ := f.text(cpuacct, "cpuacct.usage_percpu")
	for _, field := range strings.Fields(text) {
		s.Usage.PerCPU = append(s.Usage.PerCPU, f.parse(cpuacct, "cpuacct.usage_percpu", field, 0))
	}
	return s
}

func (f *files) memory1(dir string) (*v1.MemoryStat, *v1.MemoryOomControl) {
	m, oom := &v1.MemoryStat{}, &v1.MemoryOomControl{}
	f.pairs(dir, "memory.stat", map[string]*uint64{
		"cache": &m.Cache, "rss": &m.RSS, "rss_huge": &m.RSSHuge, "mapped_file": &m.MappedFile,
		"dirty": &m.Dirty, "writeback": &m.Writeback,
		"pgpgin": &m.PgPgIn, "pgpgout": &m.PgPgOut, "pgfault": &m.PgFault, "pgmajfault": &m.PgMajFault,
		"inactive_anon": &m.InactiveAnon, "active_anon": &m.ActiveAnon,
		"inactive_file": &m.InactiveFile, "active_file": &m.ActiveFile, "unevictable": &m.Unevictable,
		"hierarchical_memory_limit": &m.HierarchicalMemoryLimit, "hierarchical_memsw_limit": &m.HierarchicalSwapLimit,
		"total_cache": &m.TotalCache, "total_rss": &m.TotalRSS, "total_rss_huge": &m.TotalRSSHuge,
		"total_mapped_file": &m.TotalMappedFile, "total_dirty": &m.TotalDirty, "total_writeback": &m.TotalWriteback,
		"total_pgpgin": &m.TotalPgPgIn, "total_pgpgout": &m.TotalPgPgOut,
		"total_pgfault": &m.TotalPgFault, "total_pgmajfault": &m.TotalPgMajFault,
		"total_inactive_anon": &m.TotalInactiveAnon, "total_active_anon": &m.TotalActiveAnon,
		"total_inactive_file": &m.TotalInactiveFile, "total_active_file": &m.TotalActiveFile,
		"total_unevictable": &m.TotalUnevictable,
	})
	f.pairs(dir, "memory.oom_control", map[string]*uint64{
		"oom_kill_disable": &oom.OomKillDisable, "under_oom": &oom.UnderOom, "oom_kill": &oom.OomKill,
	})
	m.Usage = f.memoryEntry(dir, "memory.")
	m.Swap = f.memoryEntry(dir, "memory.memsw.")
	m.Kernel = f.memoryEntry(dir, "memory.kmem.")
	m.KernelTCP = f.memoryEntry(dir, "memory.kmem.tcp.")
	return m, oom
}

func (f *files) memoryEntry(dir, of string) *v1.MemoryEntry {
	return &v1.MemoryEntry{
		Usage:   f.number(dir, of+"usage_in_bytes", 0),
		Max:     f.number(dir, of+"max_usage_in_bytes", 0),
		Failcnt: f.number(dir, of+"failcnt", 0),
		Limit:   f.number(dir, of+"limit_in_bytes", 0),
	}
}

// blkio1 takes the scheduler's own counts where there are any, else those of the
// throttling layer.
func (f *files) blkio1(dir string) *v1.BlkIOStat {
	s := &v1.BlkIOStat{
		SectorsRecursive:        f.blkioEntries(dir, "blkio.sectors_recursive"),
		IoServiceBytesRecursive: f.blkioEntries(dir, "blkio.io_service_bytes_recursive"),
		IoServicedRecursive:     f.blkioEntries(dir, "blkio.io_serviced_recursive"),
		IoQueuedRecursive:       f.blkioEntries(dir, "blkio.io_queued_recursive"),
		IoServiceTimeRecursive:  f.blkioEntries(dir, "blkio.io_service_time_recursive"),
		IoWaitTimeRecursive:     f.blkioEntries(dir, "blkio.io_wait_time_recursive"),
		IoMergedRecursive:       f.blkioEntries(dir, "blkio.io_merged_recursive"),
		IoTimeRecursive:         f.blkioEntries(dir, "blkio.time_recursive"),
	}
	total := len(s.SectorsRecursive) + len(s.IoServiceBytesRecursive) + len(s.IoServicedRecursive) + len(s.IoQueuedRecursive) +
		len(s.IoServiceTimeRecursive) + len(s.IoWaitTimeRecursive) + len(s.IoMergedRecursive) + len(s.IoTimeRecursive)
	if total == 0 {
		s.IoServicedRecursive = f.blkioEntries(dir, "blkio.throttle.io_serviced")
		s.IoServiceBytesRecursive = f.blkioEntries(dir, "blkio.throttle.io_service_bytes")
	}
	return s
}

// blkioEntries reads lines "MAJOR:MINOR OPERATION VALUE" or "MAJOR:MINOR VALUE"; the
// last line is a total.
func (f *files) blkioEntries(dir, name string) []*v1.BlkIOEntry {
	text, _ := f.text(dir, name)
	var entries []*v1.BlkIOEntry
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		major, minor, ok := strings.Cut(fields[0], ":")
		if !ok {
			continue
		}
		e := &v1.BlkIOEntry{
			Major: f.parse(dir, name, major, 0), Minor: f.parse(dir, name, minor, 0),
			Value: f.parse(dir, name, fields[len(fields)-1], 0),
		}
		if len(fields) > 2 {
			e.Op = fields[1]
		}
		e.Device = blockDevice(e.Major, e.Minor)
		entries = append(entries, e)
	}
	return entries
}

// blockDevice is the device's name under /dev, "" for one that has gone.
func blockDevice(major, minor uint64) string {
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/uevent", major, minor))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "DEVNAME="); ok {
			return "/dev/" + strings.TrimSpace(name)
		}
	}
	return ""
}

func (f *files) rdma1(dir, name string) []*v1.RdmaEntry {
	var all []*v1.RdmaEntry
	for _, r := range f.rdma(dir, name) {
		all = append(all, &v1.RdmaEntry{Device: r.device, HcaHandles: r.handles, HcaObjects: r.objects})
	}
	return all
}
