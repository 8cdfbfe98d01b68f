//go:build crashpoints

package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/checker"
	"perdure/runtime"
	"perdure/task"
)

// machine is the fake kernel and the OCI runtime's state: containers, their processes and cgroups, and the files of the
// runtime's calls.
type machine struct {
	world      *world
	containers map[string]*container       // by id: what the runtime knows
	cgroups    map[string]*cgroup          // by id@instance
	processes  []*process                  // all there ever were
	intents    map[string]map[string]*call // files in the bundle, by id and intent
	mounts     map[string]bool             // by bundle
	images     map[string]time.Time        // complete ones, by path
	pid        int
	ticks      uint64
}

type container struct {
	id      string
	init    *process
	cgroup  *cgroup
	private bool // has a pid namespace of its own
	fifo    bool // the init waits for Start
	frozen  bool
	limits  string // of the last update
}

// cgroup of a container. Its counter never goes back.
type cgroup struct {
	name     string
	gone     bool
	kills    uint64
	notified bool
	watched  bool // a worker has ever known which it is
	heeding  []*heed
}

type heed struct {
	worker *worker
	fired  func()
}

// process of a container.
type process struct {
	target    checker.Target
	pid       int
	start     uint64
	container *container
	starts    int // of user code
	ended     bool
	status    uint32
	endedAt   uint64
	oom       bool
	doomed    syscall.WaitStatus // a signal that waits for the thaw
	signals   []checker.Signal   // that it was sent
}

func newMachine(w *world) *machine {
	return &machine{
		world: w, containers: map[string]*container{}, cgroups: map[string]*cgroup{}, intents: map[string]map[string]*call{},
		mounts: map[string]bool{}, images: map[string]time.Time{}, pid: 100, ticks: 1000,
	}
}

func (m *machine) describe(h io.Writer) {
	for _, id := range slices.Sorted(maps.Keys(m.containers)) {
		fmt.Fprintln(h, id, m.containers[id].status())
	}
	for _, p := range m.processes {
		fmt.Fprintln(h, p.target, p.starts, p.ended, p.status)
	}
	for _, id := range slices.Sorted(maps.Keys(m.intents)) {
		for _, name := range slices.Sorted(maps.Keys(m.intents[id])) {
			c := m.intents[id][name]
			fmt.Fprintln(h, id, c.op, c.ran, c.pid != 0, c.failure, c.over)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.cgroups)) {
		fmt.Fprintln(h, m.cgroups[name].kills, m.cgroups[name].notified, m.cgroups[name].gone)
	}
}

func (m *machine) left() []string {
	var left []string
	for id, c := range m.containers {
		left = append(left, "container "+id+", "+c.status())
	}
	for _, p := range m.processes {
		if !p.ended {
			left = append(left, fmt.Sprintf("process %d of %s", p.pid, p.target))
		}
	}
	for bundle, mounted := range m.mounts {
		if mounted {
			left = append(left, "mount of "+bundle)
		}
	}
	for _, g := range m.cgroups {
		if !g.gone {
			left = append(left, "cgroup "+g.name)
		}
	}
	return left
}

func (c *container) status() string {
	switch {
	case c.init.ended:
		return checker.Stopped
	case c.frozen:
		return checker.Paused
	case c.fifo:
		return checker.Created
	}
	return checker.Running
}

// born makes a process in a container.
func (m *machine) born(t checker.Target, c *container) *process {
	m.pid++
	m.ticks++
	p := &process{target: t, pid: m.pid, start: m.ticks, container: c}
	m.processes = append(m.processes, p)
	m.world.note("process %d of %s is born", p.pid, t)
	return p
}

// run is where a process's user code begins.
func (m *machine) run(p *process) {
	p.starts++
	m.world.note("user code of %s runs", p.target)
}

// find returns the live process of a pid.
func (m *machine) find(pid int, start uint64) *process {
	for _, p := range m.processes {
		if p.pid == pid && !p.ended && (start == 0 || p.start == start) {
			return p
		}
	}
	return nil
}

// of returns the live process of a target.
func (m *machine) of(t checker.Target) *process {
	for _, p := range m.processes {
		if p.target == t && !p.ended {
			return p
		}
	}
	return nil
}

// end ends a process: the keeper reaps it. With an init's own pid namespace all the others end.
func (m *machine) end(p *process, status syscall.WaitStatus) {
	if p.ended {
		return
	}
	if status.Signaled() {
		p.signals = append(p.signals, checker.Signal{At: m.world.now(), Number: int(status.Signal())})
	}
	if c := p.container; c.frozen && !p.oom {
		if status.Signaled() {
			p.doomed = status
		}
		return
	}
	p.ended, p.endedAt = true, m.world.now()
	p.status = uint32(status.ExitStatus())
	if status.Signaled() {
		p.status = 128 + uint32(status.Signal())
	}
	m.world.note("process %d of %s ends with %d", p.pid, p.target, p.status)
	m.world.keeper.reap(p.pid, p.start, status)
	if p == p.container.init && p.container.private {
		for _, o := range m.processes {
			if o.container == p.container {
				m.end(o, killed)
			}
		}
	}
}

const killed = syscall.WaitStatus(unix.SIGKILL)

func exitCode(code int) syscall.WaitStatus { return syscall.WaitStatus(code << 8) }

// thaw lets go on what is frozen, and what was killed meanwhile end.
func (m *machine) thaw(c *container) {
	c.frozen = false
	for _, p := range m.processes {
		if p.container == c && !p.ended && p.doomed != 0 {
			m.end(p, p.doomed)
		}
	}
}

// outOfMemory kills a process: the notification comes first, then the counter.
func (m *machine) outOfMemory(p *process) {
	g := p.container.cgroup
	g.notified = true
	g.kills++
	p.oom = true
	m.world.note("process %d of %s is killed for want of memory", p.pid, p.target)
	for _, h := range g.heeding {
		go h.fired()
	}
	m.end(p, killed)
}

// hands are what one worker has of the machine. Those of a dead one do nothing.
type hands struct{ *worker }

func (h hands) machine() *machine { return h.world.machine }

func (h hands) Runtime(c runtime.Config) task.Runtime { return &runc{hands: h, config: c} }

func (h hands) MountRootfs(bundle string, _ []runtime.Mount) error {
	h.world.take(h.worker, "mount rootfs")
	h.machine().mounts[bundle] = true
	return nil
}

func (h hands) UnmountRootfs(bundle string) error {
	h.world.take(h.worker, "unmount rootfs")
	delete(h.machine().mounts, bundle)
	return nil
}

func (h hands) OpenIO(_ runtime.Descriptors, prefix string, _ runtime.Stdio, o runtime.IOOptions) (task.IO, error) {
	io := &stdio{h, prefix}
	if err := channel(h).Store(prefix+"/stdout", nil); err != nil {
		return nil, err
	}
	if !o.StdinClosed {
		if err := channel(h).Store(prefix+"/stdin.hold", nil); err != nil {
			return nil, err
		}
	}
	return io, nil
}

func (h hands) ResumeIO(_ runtime.Descriptors, prefix string, _ runtime.Stdio, _ runtime.IOOptions) (task.IO, error) {
	return &stdio{h, prefix}, nil
}

func (h hands) CloseIO(_ runtime.Descriptors, prefix string) error {
	return channel(h).Drop(prefix)
}

// ChildStartTime and what follows are looks: they take no turn.
func (h hands) ChildStartTime(pid, parent int) (uint64, error) {
	if p := h.machine().find(pid, 0); p != nil && parent == keeperPID {
		return p.start, nil
	}
	return 0, fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
}

func (h hands) SignalProcess(pid int, start uint64, signal unix.Signal) error {
	h.world.take(h.worker, fmt.Sprintf("signal %d to process %d", signal, pid))
	p := h.machine().find(pid, start)
	if p == nil {
		return fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
	}
	h.machine().end(p, syscall.WaitStatus(signal))
	return nil
}

func (h hands) CgroupOf(pid int, start uint64) (task.Cgroup, error) {
	if p := h.machine().find(pid, start); p != nil {
		return &cgroupHandle{h, p.container.cgroup}, nil
	}
	return &cgroupHandle{h, nil}, fmt.Errorf("process %d: %w", pid, errdefs.ErrNotFound)
}

func (h hands) ParseCgroup(text string) (task.Cgroup, error) {
	g := h.machine().cgroups[text]
	if g == nil {
		return &cgroupHandle{h, nil}, errors.New("no such cgroup was ever there: " + text)
	}
	return &cgroupHandle{h, g}, nil
}

func (h hands) ResumeOOM(_ runtime.Descriptors, prefix string) (task.OOMWatch, error) {
	if !channel(h).has(prefix + "/counter") {
		return nil, fmt.Errorf("%s: %w", prefix, syscall.ENOENT)
	}
	key, _ := strings.CutSuffix(strings.TrimPrefix(prefix, "c/"), "/oom")
	return &watch{h, h.machine().cgroups[key]}, nil
}

func (h hands) HasCRIU() bool { return true }

func (h hands) IsImage(path string, since time.Time) bool {
	at, ok := h.machine().images[path]
	return ok && !at.Before(since)
}

// stdio is one process's.
type stdio struct {
	hands
	prefix string
}

func (io *stdio) Started() error              { return nil }
func (io *stdio) Resize(uint16, uint16) error { return nil }
func (io *stdio) CloseStdin() error           { return (channel{io.worker}).Drop(io.prefix + "/stdin.hold") }
func (io *stdio) Exited()                     {}
func (io *stdio) Close() error                { return (channel{io.worker}).Drop(io.prefix) }
func (io *stdio) Rest() ([]string, bool)      { return nil, true }

func (io *stdio) Drained(context.Context) error {
	io.world.take(io.worker, "drained "+io.prefix)
	return nil
}

type cgroupHandle struct {
	hands
	cgroup *cgroup
}

func (g *cgroupHandle) String() string                { return g.cgroup.name }
func (g *cgroupHandle) IsZero() bool                  { return g.cgroup == nil }
func (g *cgroupHandle) EnableControllers() error      { return nil }
func (g *cgroupHandle) Stats() (proto.Message, error) { return nil, errdefs.ErrNotImplemented }

func (g *cgroupHandle) members() []*process {
	var members []*process
	for _, p := range g.machine().processes {
		if p.container.cgroup == g.cgroup && !p.ended {
			members = append(members, p)
		}
	}
	return members
}

func (g *cgroupHandle) Processes() ([]int, error) {
	var pids []int
	for _, p := range g.members() {
		pids = append(pids, p.pid)
	}
	return pids, nil
}

func (g *cgroupHandle) Thaw() error {
	g.world.take(g.worker, "thaw "+g.cgroup.name)
	for _, c := range g.machine().containers {
		if c.cgroup == g.cgroup {
			g.machine().thaw(c)
		}
	}
	return nil
}

func (g *cgroupHandle) Kill(context.Context, ...int) error {
	g.world.take(g.worker, "kill all in "+g.cgroup.name)
	for _, p := range g.members() {
		g.machine().thaw(p.container)
		g.machine().end(p, killed)
	}
	return nil
}

func (g *cgroupHandle) WatchOOM(_ runtime.Descriptors, prefix string) (task.OOMWatch, error) {
	if g.cgroup == nil || g.cgroup.gone {
		return nil, fmt.Errorf("cgroup: %w", errdefs.ErrNotFound)
	}
	if err := (channel{g.worker}).Store(prefix+"/counter", nil); err != nil {
		return nil, err
	}
	g.cgroup.watched = true
	return &watch{g.hands, g.cgroup}, nil
}

// watch is one worker's of a cgroup, as with version 1. It is used under locks of the worker's, so nothing of it waits.
type watch struct {
	hands
	cgroup *cgroup
}

func (w *watch) Kills() (uint64, error) {
	if w.cgroup.gone {
		return 0, errors.New("the cgroup is gone")
	}
	return w.cgroup.kills, nil
}

func (w *watch) Notified() bool { return w.cgroup.notified }
func (w *watch) OnlyOOMs() bool { return true }

func (w *watch) Drain() bool {
	had := w.cgroup.notified
	if !w.isDead() {
		w.cgroup.notified = false
	}
	return had
}

func (w *watch) Wake() (string, uint32) { return "", 0 }
func (w *watch) Close()                 {}

func (w *watch) Heed(fired func()) (func(), error) {
	h := &heed{w.worker, fired}
	w.cgroup.heeding = append(w.cgroup.heeding, h)
	if w.cgroup.notified {
		go fired()
	}
	return func() {
		w.cgroup.heeding = slices.DeleteFunc(w.cgroup.heeding, func(o *heed) bool { return o == h })
	}, nil
}
