package soak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/proc"
)

// call is a runc that works for a shim.
type call struct {
	*proc.Handle
	slot   string // container id
	intent string // create-1, start-12 ...
}

// op is the operation of an intent: start of start-12.
func (c *call) op() string {
	op, _, _ := strings.Cut(c.intent, "-")
	return op
}

const (
	hunt     = 3 * time.Second      // how long a runc is looked for
	huntLook = 4 * time.Millisecond // between two looks: a call takes some ten times as long
)

// catch waits for a runc that has just been started.
func (s *soak) catch(ctx context.Context) (*call, error) {
	ctx, cancel := context.WithTimeout(ctx, hunt)
	defer cancel()
	known := map[int]bool{}
	for first := true; ctx.Err() == nil; first = false {
		pids, err := numbers("/proc")
		if err != nil {
			return nil, err
		}
		for _, pid := range pids {
			if known[pid] {
				continue
			}
			known[pid] = true
			if first {
				continue // nobody knows how far it is
			}
			if c := s.runcOf(pid); c != nil {
				return c, nil
			}
		}
		pause(ctx, huntLook)
	}
	return nil, nil
}

// numbers lists the entries of a directory whose names are numbers.
func numbers(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	var all []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			all = append(all, n)
		}
	}
	return all, err
}

// runcOf holds on to a process that is a runc of this run's shims; nil for every other.
func (s *soak) runcOf(pid int) *call {
	const variable = "PERDURE_INTENT="
	var c call
	is := func(p proc.Process) bool {
		// What a runc has forked has its environment for a while, and is no runc.
		if parent, err := proc.Read(p.Parent); err != nil || !proc.IsWorker(parent) {
			return false
		}
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil {
			return false
		}
		for v := range bytes.SplitSeq(env, []byte{0}) {
			name, found := strings.CutPrefix(string(v), variable+s.h.Namespace+"/")
			if parts := strings.Split(name, "/"); found && len(parts) == 3 {
				c.slot, c.intent = parts[0], parts[2]
				return true
			}
		}
		return false
	}
	h, err := proc.Open(pid, is)
	if err != nil {
		return nil
	}
	c.Handle = h
	return &c
}

func (s *soak) killRunc(ctx context.Context, random *rand.Rand) error {
	delay := between(random, 0, 40*time.Millisecond)
	c, err := s.catch(ctx)
	if c == nil || err != nil {
		return err
	}
	defer c.Close()
	pause(ctx, delay)
	// It is noted before it is done: an answer may be there at once.
	end := s.faults.begin(fault{Kind: faultRuncKill, Slot: c.slot, Op: c.op(), Text: fmt.Sprintf("kill -9 of runc %d in %s after %v", c.Pid, c.intent, delay)})
	defer end()
	if err := c.Signal(unix.SIGKILL); err != nil {
		return gone(err)
	}
	return c.Wait(s.ctx)
}

func (s *soak) stopRunc(ctx context.Context, random *rand.Rand) error {
	delay, hold := between(random, 0, 40*time.Millisecond), between(random, 50*time.Millisecond, 3*time.Second)
	c, err := s.catch(ctx)
	if c == nil || err != nil {
		return err
	}
	defer c.Close()
	pause(ctx, delay)
	end := s.faults.begin(fault{Kind: faultRuncStop, Slot: c.slot, Text: fmt.Sprintf("SIGSTOP of runc %d in %s for %v", c.Pid, c.intent, hold)})
	defer end()
	err = c.Signal(unix.SIGSTOP)
	pause(s.ctx, hold)
	return errors.Join(gone(err), gone(c.Signal(unix.SIGCONT)))
}
