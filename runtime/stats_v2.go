package runtime

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
)

// metrics2 reads a directory of the version 2 hierarchy. A limit of "max" is told as
// the largest number, as containerd/cgroups does.
func (f *files) metrics2(dir string) *v2.Metrics {
	m := &v2.Metrics{
		Pids:   &v2.PidsStat{Current: f.number(dir, "pids.current", 0), Limit: f.number(dir, "pids.max", math.MaxUint64)},
		CPU:    f.cpu2(dir),
		Memory: f.memory2(dir),
		Io:     &v2.IOStat{Usage: f.io2(dir), PSI: f.pressure(dir, "io.pressure")},
		Rdma:   &v2.RdmaStat{Current: f.rdma2(dir, "rdma.current"), Limit: f.rdma2(dir, "rdma.max")},
	}
	events := &v2.MemoryEvents{}
	if f.pairs(dir, "memory.events", map[string]*uint64{
		"low": &events.Low, "high": &events.High, "max": &events.Max,
		"oom": &events.Oom, "oom_kill": &events.OomKill, "oom_group_kill": &events.OomGroupKill,
	}) {
		m.MemoryEvents = events
	}
	for _, size := range hugePageSizes() {
		h := &v2.HugeTlbStat{
			Pagesize: size,
			Current:  f.number(dir, "hugetlb."+size+".current", 0),
			Max:      f.number(dir, "hugetlb."+size+".max", math.MaxUint64),
		}
		f.pairs(dir, "hugetlb."+size+".events", map[string]*uint64{"max": &h.Failcnt})
		m.Hugetlb = append(m.Hugetlb, h)
	}
	return m
}

func (f *files) cpu2(dir string) *v2.CPUStat {
	s := &v2.CPUStat{PSI: f.pressure(dir, "cpu.pressure")}
	f.pairs(dir, "cpu.stat", map[string]*uint64{
		"usage_usec": &s.UsageUsec, "user_usec": &s.UserUsec, "system_usec": &s.SystemUsec,
		"nr_periods": &s.NrPeriods, "nr_throttled": &s.NrThrottled, "throttled_usec": &s.ThrottledUsec,
		"nr_bursts": &s.NrBursts, "burst_usec": &s.BurstUsec,
	})
	return s
}

func (f *files) memory2(dir string) *v2.MemoryStat {
	m := &v2.MemoryStat{}
	if !f.pairs(dir, "memory.stat", map[string]*uint64{
		"anon": &m.Anon, "file": &m.File, "kernel_stack": &m.KernelStack, "slab": &m.Slab, "sock": &m.Sock, "shmem": &m.Shmem,
		"file_mapped": &m.FileMapped, "file_dirty": &m.FileDirty, "file_writeback": &m.FileWriteback, "anon_thp": &m.AnonThp,
		"inactive_anon": &m.InactiveAnon, "active_anon": &m.ActiveAnon,
		"inactive_file": &m.InactiveFile, "active_file": &m.ActiveFile, "unevictable": &m.Unevictable,
		"slab_reclaimable": &m.SlabReclaimable, "slab_unreclaimable": &m.SlabUnreclaimable,
		"pgfault": &m.Pgfault, "pgmajfault": &m.Pgmajfault,
		"workingset_refault": &m.WorkingsetRefault, "workingset_activate": &m.WorkingsetActivate,
		"workingset_nodereclaim": &m.WorkingsetNodereclaim,
		"pgrefill":               &m.Pgrefill, "pgscan": &m.Pgscan, "pgsteal": &m.Pgsteal, "pgactivate": &m.Pgactivate,
		"pgdeactivate": &m.Pgdeactivate, "pglazyfree": &m.Pglazyfree, "pglazyfreed": &m.Pglazyfreed,
		"thp_fault_alloc": &m.ThpFaultAlloc, "thp_collapse_alloc": &m.ThpCollapseAlloc,
	}) {
		return m
	}
	m.Usage = f.number(dir, "memory.current", math.MaxUint64)
	m.UsageLimit = f.number(dir, "memory.max", math.MaxUint64)
	m.MaxUsage = f.number(dir, "memory.peak", math.MaxUint64)
	m.SwapUsage = f.number(dir, "memory.swap.current", math.MaxUint64)
	m.SwapLimit = f.number(dir, "memory.swap.max", math.MaxUint64)
	m.SwapMaxUsage = f.number(dir, "memory.swap.peak", math.MaxUint64)
	m.PSI = f.pressure(dir, "memory.pressure")
	return m
}

// io2 reads lines "MAJOR:MINOR rbytes=N wbytes=N rios=N wios=N ...".
func (f *files) io2(dir string) []*v2.IOEntry {
	const name = "io.stat"
	text, _ := f.text(dir, name)
	var entries []*v2.IOEntry
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue // a device without counts
		}
		major, minor, ok := strings.Cut(fields[0], ":")
		if !ok {
			continue
		}
		e := &v2.IOEntry{Major: f.parse(dir, name, major, 0), Minor: f.parse(dir, name, minor, 0)}
		into := map[string]*uint64{"rbytes": &e.Rbytes, "wbytes": &e.Wbytes, "rios": &e.Rios, "wios": &e.Wios}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			if to := into[key]; to != nil {
				*to = f.parse(dir, name, value, 0)
			}
		}
		entries = append(entries, e)
	}
	return entries
}

// pressure reads lines "some avg10=F avg60=F avg300=F total=N", and "full ...". nil
// where the kernel does not account it.
func (f *files) pressure(dir, name string) *v2.PSIStats {
	text, ok := f.text(dir, name)
	if !ok {
		return nil
	}
	s := &v2.PSIStats{}
	for line := range strings.Lines(text) {
		kind, rest, _ := strings.Cut(line, " ")
		data := &v2.PSIData{}
		averages := map[string]*float64{"avg10": &data.Avg10, "avg60": &data.Avg60, "avg300": &data.Avg300}
		for _, field := range strings.Fields(rest) {
			key, value, _ := strings.Cut(field, "=")
			if key == "total" {
				data.Total = f.parse(dir, name, value, 0)
			} else if to := averages[key]; to != nil {
				*to = f.fraction(dir, name, value)
			}
		}
		switch kind {
		case "some":
			s.Some = data
		case "full":
			s.Full = data
		}
	}
	return s
}

func (f *files) fraction(dir, name, text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f.note(fmt.Errorf("%s/%s: %q is no number", dir, name, text))
	}
	return x
}

func (f *files) rdma2(dir, name string) []*v2.RdmaEntry {
	var all []*v2.RdmaEntry
	for _, r := range f.rdma(dir, name) {
		all = append(all, &v2.RdmaEntry{Device: r.device, HcaHandles: r.handles, HcaObjects: r.objects})
	}
	return all
}
