package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// Options say what a run is to be.
type Options struct {
	Seed   uint64
	For    time.Duration
	Slots  []string // ids of containers; none: all
	Faults []string // kinds; none: all
}

// soak is one run.
type soak struct {
	Options
	t       testing.TB
	h       *harness.Harness
	ctx     context.Context
	cancel  context.CancelFunc
	bin     string // directory of perdure's binaries
	fifos   string // directory
	slots   []slot
	mounts  map[string][]*types.Mount // root file systems, by container
	process specs.Process             // what an exec starts from

	clock    *clock
	access   *access
	receiver *receiver
	faults   *faultLog
	stats    *stats
	stop     chan struct{} // closed when no new life is to begin
	judging  sync.WaitGroup
	noClock  sync.Once
	reading  map[string]*reading // by container
	loading  sync.RWMutex        // held while containerd restarts; under its read side are faults that must not meet that

	mu      sync.Mutex
	bad     *violation // the first
	orphans map[string]int
}

// violation is what must not be.
type violation struct {
	err   error
	at    time.Duration // from the begin of the run
	trace string        // of the life that it was seen in
	slot  *slot         // that life's, nil where it is of none
	kinds []string      // of the faults that touched its shim
	slots []string      // that the run had
}

// memory is how large the file system of the bundles is: 22 journals and what containerd writes, several times over.
const memory = "size=64m"

// run soaks for a while and returns the first violation, nil if there is none, and how often workers were killed.
func run(t testing.TB, o Options) (*violation, int) {
	h := harness.New(t, "PERDURE_IDLE_MS=4000")
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	s := &soak{
		Options: o, t: t, h: h, ctx: ctx, cancel: cancel, fifos: filepath.Join(h.Dir(), "fifo"),
		clock: &clock{began: time.Now()}, stop: make(chan struct{}),
		mounts: map[string][]*types.Mount{}, reading: map[string]*reading{}, orphans: map[string]int{},
	}
	s.stats = newStats()
	s.faults = &faultLog{clock: s.clock}
	if err := s.setUp(); err != nil {
		t.Fatal(err)
	}
	defer s.tearDown()
	s.everybody()
	if s.bad == nil {
		s.checkOrphans()
	}
	s.stats.print(t, s)
	return s.bad, s.faults.counts()[faultKill]
}

// setUp starts containerd with its state on a small file system, and makes the containers.
func (s *soak) setUp() error {
	var err error
	if s.bin, err = daemon.Bin(); err != nil {
		return err
	}
	if s.receiver, err = listen(filepath.Join(s.h.Dir(), "r.sock"), s.clock, func(err error) { go s.violated(nil, err) }); err != nil {
		return err
	}
	s.h.Serving = func(context.Context, *client.Client) error { return s.stand() }
	err = bundlesOnMemory(s.ctx, s.h, func(dir string) error {
		return errors.Join(os.MkdirAll(dir, 0o711), unix.Mount("tmpfs", dir, "tmpfs", 0, memory))
	})
	if err != nil {
		return err
	}
	s.access = newAccess(s.h)
	for _, slot := range slots() {
		if len(s.Slots) > 0 && !slices.Contains(s.Slots, slot.ID) {
			continue
		}
		s.slots = append(s.slots, slot)
		s.reading[slot.ID] = &reading{}
		if err := s.makeContainer(slot); err != nil {
			return fmt.Errorf("container %s: %w", slot.ID, err)
		}
	}
	return nil
}

// stand puts the receiver in the place of the socket that containerd listens on for shims.
func (s *soak) stand() error {
	sockets, err := filepath.Glob(filepath.Join(s.h.Dir(), "t[0-9]*"))
	if err != nil {
		return err
	}
	for _, path := range sockets {
		info, err := os.Lstat(path)
		if err == nil && info.Mode()&os.ModeSocket != 0 && !strings.HasSuffix(path, ".real") {
			return s.receiver.stand(path)
		}
	}
	return fmt.Errorf("containerd listens on none of %v", sockets)
}

// podAnnotation is how CRI says which pod a container is of.
const podAnnotation = "io.kubernetes.cri.sandbox-id"

// makeContainer makes the container that a slot's tasks are of. Its program is whatever is in its directory then.
func (s *soak) makeContainer(slot slot) error {
	dir := s.dir(slot)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	c := s.h.Client()
	image, err := c.GetImage(s.ctx, daemon.Image)
	if err != nil {
		return err
	}
	options := []oci.SpecOpts{
		oci.WithRootFSPath("rootfs"), oci.WithProcessArgs("/bin/sh", "/w/init"), oci.WithEnv([]string{"PATH=/bin"}),
		oci.WithMounts([]specs.Mount{{Type: "bind", Source: dir, Destination: "/w", Options: []string{"rbind", "rw"}}}),
		oci.WithAnnotations(map[string]string{podAnnotation: slot.Group}),
	}
	if slot.Terminal {
		options = append(options, oci.WithTTY)
	}
	if slot.HostPID {
		options = append(options, oci.WithHostNamespace(specs.PIDNamespace))
	}
	snapshotter := s.h.Snapshotter()
	made, err := c.NewContainer(s.ctx, slot.ID, client.WithImageName(daemon.Image), client.WithSnapshotter(snapshotter),
		client.WithNewSnapshot(slot.ID, image), client.WithRuntime(daemon.Runtime(), nil), client.WithNewSpec(options...))
	if err != nil {
		return err
	}
	spec, err := made.Spec(s.ctx)
	if err != nil {
		return err
	}
	s.process = *spec.Process
	mounts, err := c.SnapshotService(snapshotter).Mounts(s.ctx, slot.ID)
	for _, m := range mounts {
		s.mounts[slot.ID] = append(s.mounts[slot.ID], &types.Mount{Type: m.Type, Source: m.Source, Target: m.Target, Options: m.Options})
	}
	return err
}

// dir is /w of a container.
func (s *soak) dir(slot slot) string { return filepath.Join(s.h.Dir(), "w", slot.ID) }

// everybody has all clients and faults at work for as long as the run is to take, or until something must not be.
func (s *soak) everybody() {
	var clients, others sync.WaitGroup
	ctx, done := context.WithCancel(s.ctx)
	defer done()
	for _, slot := range s.slots {
		clients.Go(func() { s.inhabit(slot) })
	}
	for i := range readers {
		others.Go(func() { s.read(ctx, i) })
	}
	s.disturb(ctx, &others)
	others.Go(func() { s.report(ctx) })
	pause(s.ctx, s.For)
	close(s.stop)
	done() // the last lives end in peace
	clients.Wait()
	others.Wait()
	s.judging.Wait()
}

// inhabit has one life after the other in a slot.
func (s *soak) inhabit(slot slot) {
	for n := 1; s.ctx.Err() == nil; n++ {
		select {
		case <-s.stop:
			return
		default:
		}
		l := &life{s: s, slot: slot, n: n, plan: planLife(s.Seed, slot, n), ctx: s.ctx, dir: s.dir(slot), began: s.clock.tick()}
		s.reading[slot.ID].begin(l)
		l.live()
		s.reading[slot.ID].end()
	}
}

// violated keeps the first violation and ends the run.
func (s *soak) violated(l *life, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad != nil {
		return
	}
	now := s.clock.tick()
	s.bad = &violation{err: err, at: since(now), slots: s.Slots}
	if l != nil {
		s.bad.err, s.bad.slot, s.bad.trace = fmt.Errorf("%s: %w", l.target(""), err), &l.slot, l.trace()
		for _, f := range s.faults.during(l.slot, l.began, now) {
			if kind := string(f.Kind); !slices.Contains(s.bad.kinds, kind) {
				s.bad.kinds = append(s.bad.kinds, kind)
			}
		}
		if s.bad.kinds == nil {
			s.bad.kinds = []string{"none"}
		}
	}
	s.t.Errorf("must not be: %v\n%s", s.bad.err, s.bad.trace)
	s.cancel()
}

// orphan notes a create that was cut off and has not happened: events may tell of a task that was there for a moment.
func (s *soak) orphan(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orphans[id]++
}

// checkOrphans judges the events that are no life's: they can only be of tasks whose create was cut off, and each tells of
// one that was never started.
func (s *soak) checkOrphans() {
	for _, slot := range s.slots {
		pids := map[int][]checker.Event{}
		for _, e := range s.receiver.look(slot.ID, func(checker.Event) bool { return true }) {
			pids[e.Pid] = append(pids[e.Pid], e)
		}
		for pid, events := range pids {
			for _, e := range events {
				if pid == 0 || e.Exec != "" || e.Name == "start" {
					s.violated(nil, fmt.Errorf("%s: an event that is of no life: %s", slot.ID, e))
				}
			}
		}
		if len(pids) > s.orphans[slot.ID] {
			s.violated(nil, fmt.Errorf("%s: events of %d processes that are of no life, and %d creates were cut off", slot.ID, len(pids), s.orphans[slot.ID]))
		}
	}
}

// tearDown ends what a run that was broken off has left, and looks whether anything is left of one that was not.
func (s *soak) tearDown() {
	ctx, cancel := context.WithTimeout(s.h.Context(), wait.Limit(2*time.Minute))
	defer cancel()
	if s.h.Pid() == 0 {
		if err := s.h.Start(ctx); err != nil {
			s.t.Error(err)
		}
	}
	if s.h.Client() != nil {
		for _, slot := range s.slots {
			if err := s.removeContainer(ctx, slot.ID); err != nil {
				s.t.Errorf("remove %s: %v", slot.ID, err)
			}
		}
	}
	if s.bad == nil {
		s.checkBundles(ctx)
	}
	err := errors.Join(s.h.Stop(ctx), s.receiver.close())
	if s.bad != nil {
		_ = unix.Unmount(s.h.State(), unix.MNT_DETACH) // whoever was broken off is ended by the harness
	} else if err := errors.Join(err, unix.Unmount(s.h.State(), 0)); err != nil {
		s.t.Errorf("take the file system of the bundles away: %v", err)
		_ = unix.Unmount(s.h.State(), unix.MNT_DETACH)
	}
	s.h.Serving = func(context.Context, *client.Client) error { return nil }
}

func (s *soak) removeContainer(ctx context.Context, id string) error {
	c, err := s.h.Client().LoadContainer(ctx, id)
	if err != nil {
		return err
	}
	if task, err := c.Task(ctx, nil); err == nil {
		if _, err := task.Delete(ctx, client.WithProcessKill); err != nil && s.bad == nil {
			return err
		}
	}
	return c.Delete(ctx, client.WithSnapshotCleanup)
}

// checkBundles looks for what the harness cannot see once the bundles' file system is gone.
func (s *soak) checkBundles(ctx context.Context) {
	dir := filepath.Dir(s.h.Bundle(s.h.Namespace, "x"))
	err := wait.Until(ctx, 10*time.Second, "all bundles and spools to be gone", func() error {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			return nil
		}
		return fmt.Errorf("there are %v", entries)
	})
	if err != nil {
		s.t.Error(err)
	}
}

// commit is the commit of the tree that this was built from.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
