package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/proc"
)

// source makes one kind of fault, again and again.
type source struct {
	kind        faultKind
	least, most time.Duration // between one and the next
	make        func(*soak, context.Context, *rand.Rand) error
}

// sources have numbers that give a life of some seconds several kills, and each of the rare faults about once a minute.
var sources = []source{
	{faultKill, 100 * time.Millisecond, 1300 * time.Millisecond, (*soak).killWorker},
	{faultStop, 5 * time.Second, 15 * time.Second, (*soak).stopWorker},
	{faultRuncKill, 2 * time.Second, 8 * time.Second, (*soak).killRunc},
	{faultRuncStop, 4 * time.Second, 12 * time.Second, (*soak).stopRunc},
	{faultContainerd, 30 * time.Second, 60 * time.Second, (*soak).restartContainerd},
	{faultFreeze, 30 * time.Second, 70 * time.Second, (*soak).freezeContainerd},
	{faultReceiver, 15 * time.Second, 40 * time.Second, (*soak).spoilReceiver},
	{faultDisk, 30 * time.Second, 60 * time.Second, (*soak).fillDisk},
	{faultClock, 3 * time.Second, 12 * time.Second, (*soak).stepClock},
}

// disturb starts all sources of faults that the run has.
func (s *soak) disturb(ctx context.Context, group *sync.WaitGroup) {
	for _, src := range sources {
		if len(s.Faults) > 0 && !slices.Contains(s.Faults, string(src.kind)) {
			continue
		}
		group.Go(func() {
			random, due := stream(s.Seed, "fault "+string(src.kind)), time.Now()
			for {
				// From when the last one was due: their number is that of the plan also where making one takes long.
				due = due.Add(between(random, src.least, src.most))
				pause(ctx, time.Until(due))
				if ctx.Err() != nil {
					return
				}
				if err := src.make(s, ctx, random); err != nil && s.ctx.Err() == nil {
					s.violated(nil, fmt.Errorf("fault %s: %w", src.kind, err))
				}
			}
		})
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// shim is the pair of processes that serves a group at this moment.
type shim struct {
	group          string
	keeper, worker int
}

// shims finds all that have a worker, in order of their groups.
func (s *soak) shims() ([]shim, error) {
	all, err := proc.All()
	if err != nil {
		return nil, err
	}
	keepers := map[int]string{}
	for _, p := range all {
		for _, slot := range s.slots {
			if (proc.Shim{Runtime: daemon.Runtime(), Namespace: s.h.Namespace, Group: slot.Group}).IsServer(p) {
				keepers[p.Pid] = slot.Group
			}
		}
	}
	var found []shim
	for _, p := range all {
		if group, ok := keepers[p.Parent]; ok && proc.IsWorker(p) {
			found = append(found, shim{group, p.Parent, p.Pid})
		}
	}
	slices.SortFunc(found, func(a, b shim) int { return strings.Compare(a.group, b.group) })
	return found, nil
}

// victim holds on to the worker of a random shim; nil where there is none.
func (s *soak) victim(random *rand.Rand, allowed func(group string) bool) (*proc.Handle, shim, error) {
	n := random.Uint64()
	all, err := s.shims()
	all = slices.DeleteFunc(all, func(sh shim) bool { return allowed != nil && !allowed(sh.group) })
	if err != nil || len(all) == 0 {
		return nil, shim{}, err
	}
	v := all[n%uint64(len(all))]
	h, err := proc.Open(v.worker, proc.IsWorker)
	if errors.Is(err, os.ErrNotExist) {
		return nil, v, nil // it has ended just now
	}
	return h, v, err
}

func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (s *soak) killWorker(ctx context.Context, random *rand.Rand) error {
	h, v, err := s.victim(random, nil)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	end := s.faults.begin(fault{Kind: faultKill, Group: v.group, Text: fmt.Sprintf("kill -9 of worker %d", v.worker)})
	defer end()
	if err := h.Signal(unix.SIGKILL); err != nil {
		return gone(err)
	}
	return h.Wait(s.ctx)
}

// stopEvery is how long a group is spared after its worker was stopped. A request that was executing in two workers that hung
// is refused by the keeper for poison, and its patience doubles for a minute: two stops in one request would prove nothing.
const stopEvery = 100 * time.Second

func (s *soak) stopWorker(ctx context.Context, random *rand.Rand) error {
	hold := between(random, 100*time.Millisecond, 9*time.Second)
	s.loading.RLock()
	defer s.loading.RUnlock()
	h, v, err := s.victim(random, s.rested)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	end := s.faults.begin(fault{Kind: faultStop, Group: v.group, Text: fmt.Sprintf("SIGSTOP of worker %d for up to %v", v.worker, hold)})
	defer end()
	if err := h.Signal(unix.SIGSTOP); err != nil {
		return gone(err)
	}
	limited, cancel := context.WithTimeout(s.ctx, hold)
	defer cancel()
	if h.Wait(limited) == nil {
		return nil // the keeper, or another fault, has ended it
	}
	return gone(h.Signal(unix.SIGCONT))
}

// rested says whether the last stop of a group's worker is long ago.
func (s *soak) rested(group string) bool {
	now := s.clock.tick()
	last := s.faults.during(slot{Group: group}, now-min(now, uint64(stopEvery.Microseconds())), now, faultStop)
	return len(last) == 0
}

// restartContainerd does so while no worker is stopped and the disk is not full: a daemon that starts gives a shim 5 s to
// answer, and needs its own state directory.
func (s *soak) restartContainerd(ctx context.Context, random *rand.Rand) error {
	down := between(random, 0, 20*time.Second)
	s.loading.Lock()
	defer s.loading.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	end := s.faults.begin(fault{Kind: faultContainerd, Text: fmt.Sprintf("kill -9 of containerd, down for %v", down)})
	defer end()
	return s.access.restart(s.ctx, func() {
		_ = s.receiver.connect("")
		pause(s.ctx, down)
	})
}

func (s *soak) freezeContainerd(ctx context.Context, random *rand.Rand) error {
	hold := between(random, 500*time.Millisecond, 7*time.Second)
	s.loading.RLock()
	defer s.loading.RUnlock()
	end := s.faults.begin(fault{Kind: faultFreeze, Text: fmt.Sprintf("SIGSTOP of containerd for %v", hold)})
	defer end()
	h, err := proc.Open(s.h.Pid(), func(proc.Process) bool { return true })
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.Signal(unix.SIGSTOP); err != nil {
		return err
	}
	pause(s.ctx, hold)
	return h.Signal(unix.SIGCONT)
}

func (s *soak) spoilReceiver(ctx context.Context, random *rand.Rand) error {
	m := []mood{refuses, hangs, forgets}[random.IntN(3)]
	hold := between(random, 500*time.Millisecond, 8*time.Second)
	end := s.faults.begin(fault{Kind: faultReceiver, Text: fmt.Sprintf("the receiver %s events for %v", m, hold)})
	defer end()
	s.receiver.feel(m)
	pause(s.ctx, hold)
	s.receiver.feel(takes)
	return nil
}

// fillDisk fills the file system that bundles and journals are on, but for a few blocks.
func (s *soak) fillDisk(ctx context.Context, random *rand.Rand) error {
	hold, spare := between(random, time.Second, 7*time.Second), random.Uint64N(8)
	s.loading.RLock()
	defer s.loading.RUnlock()
	end := s.faults.begin(fault{Kind: faultDisk, Text: fmt.Sprintf("the disk is full but for %d blocks for %v", spare, hold)})
	defer end()
	f, err := os.Create(filepath.Join(s.h.State(), "full"))
	if err != nil {
		return err
	}
	err = fill(f, spare)
	pause(s.ctx, hold)
	return errors.Join(err, os.Remove(f.Name()), f.Close())
}

// fill takes all blocks of a file system but for some, and those that others free meanwhile.
func fill(f *os.File, spare uint64) error {
	var size int64
	for range 10 {
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
			return err
		}
		if fs.Bavail <= spare {
			return nil
		}
		more := int64(fs.Bavail-spare) * fs.Bsize
		err := unix.Fallocate(int(f.Fd()), 0, size, more)
		if err == nil {
			size += more
		} else if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return nil
}

// clockStep is how far the clock jumps at most. Other work on the machine is to bear it; a process lives for less, and
// that its end is not told to be before its start is what may go wrong.
const clockStep = 400 * time.Millisecond

// stepClock has the machine's clock jump by a little, forward or backward, and back. Both jumps are relative: of runs that
// do so side by side nothing is left. Where nobody may set the clock, nothing is done.
func (s *soak) stepClock(ctx context.Context, random *rand.Rand) error {
	step, hold := between(random, -clockStep, clockStep), between(random, 50*time.Millisecond, 3*time.Second)
	if err := jump(0); err != nil {
		s.noClock.Do(func() { s.t.Logf("the clock is not stepped here: %v", err) })
		return nil
	}
	end := s.faults.begin(fault{Kind: faultClock, Text: fmt.Sprintf("the clock jumps by %v for %v", step, hold)})
	defer end()
	if err := jump(step); err != nil {
		return err
	}
	pause(ctx, hold)
	return jump(-step)
}

// jump adds d to CLOCK_REALTIME (clock_adjtime(2), ADJ_SETOFFSET).
func jump(d time.Duration) error {
	const setOffset, nano = 0x0100, 0x2000
	sec, nsec := int64(d/time.Second), int64(d%time.Second)
	if nsec < 0 {
		sec, nsec = sec-1, nsec+int64(time.Second)
	}
	_, err := unix.ClockAdjtime(unix.CLOCK_REALTIME, &unix.Timex{Modes: setOffset | nano, Time: unix.Timeval{Sec: sec, Usec: nsec}})
	return err
}
