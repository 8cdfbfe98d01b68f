package task

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
)

// Adopt takes over a container from its journal. When it returns the container
// answers reads and its exits find it; commands wait until what the last
// worker left half done is settled, which goes on beside. oldest is the lowest
// request that still waits for an answer.
func (s *Service) Adopt(journal *store.Journal, oldest uint64) error {
	create, err := createOf(journal.State())
	if err != nil {
		return fmt.Errorf("container %s: %w", journal.Meta().ID, err)
	}
	c := newContainer(s, journal, create)
	journal.Forget(oldest)
	switch v := c.state(); {
	case v.Init.State == lifecycle.Deleted:
		close(c.adopted)
		c.adoptDeleted(oldest)
	case v.Init.State == "" && len(v.Open) == 0:
		close(c.adopted)
		c.vanish(false) // killed before the intent of its create
	default:
		s.enter(c)
		c.claimLive()
		closed := s.exits.opened()
		s.idle.begin()
		go func() {
			defer s.idle.end()
			defer close(c.adopted)
			defer closed()
			if err := c.recover(oldest); err != nil {
				s.warn(c.id, "re-adoption is incomplete", err)
			}
		}()
	}
	return nil
}

// createRequest is the number of the request whose create is open.
func createRequest(state *lifecycle.Container) uint64 {
	r, _ := state.Opened(lifecycle.OpCreate, "")
	return r.Request
}

// createOf finds the parameters of the create, concluded or still open.
func createOf(state *lifecycle.Container) (createParams, error) {
	raw := state.Init.Params
	if r, ok := state.Opened(lifecycle.OpCreate, ""); ok {
		raw = r.Params
	}
	return decodeParams[createParams](raw)
}

// adoptDeleted goes on with a container whose Delete is committed: its answer
// may still be asked for, its events may still be unsent.
func (c *container) adoptDeleted(oldest uint64) {
	for _, r := range c.state().Answers {
		if r.Op == lifecycle.OpDelete && r.Exec == "" && r.Request >= oldest {
			c.svc.enter(c) // the replayed Delete departs
			return
		}
	}
	go func() {
		if err := c.depart(); err != nil {
			c.svc.warn(c.id, "publish what a deleted container left", err)
		}
	}()
}

// claimLive has the exits of the running processes delivered to this container.
func (c *container) claimLive() {
	v := c.state()
	ids := []string{""}
	for id := range v.Execs {
		ids = append(ids, id)
	}
	for _, id := range ids {
		if p, ok := v.process(id); ok && p.Process.Pid != 0 && p.Exit == nil {
			c.svc.exits.claim(c, id, p.Process)
		}
	}
}

// recover settles the open intents and takes over the stdio.
func (c *container) recover(oldest uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), effectTimeout)
	defer cancel()
	if err := c.resumeStreams(); err != nil {
		return err
	}
	open := c.state().Container
	if len(open.Open) == 0 {
		return nil
	}
	outcomes, err := c.svc.Settle(ctx, open, inspector{c.runc})
	if err != nil {
		return fmt.Errorf("judge open intents: %w", err)
	}
	for _, r := range outcomes {
		crash.Here("recover", "", crash.BeforeSettle)
		if err := c.settle(ctx, open.Open[r.Intent], r); err != nil {
			return fmt.Errorf("settle %s: %w", r.Op, err)
		}
	}
	if c.state().Init.State == "" {
		c.vanish(createRequest(open) >= oldest)
	}
	return nil
}

// settle carries out one judgement: streams first, so that an outcome is not
// told before its process's output has a reader; then the outcome, by the same
// path as a command's.
func (c *container) settle(ctx context.Context, intent, r lifecycle.Record) error {
	brings := r.Op == lifecycle.OpCreate || r.Op == lifecycle.OpStart && r.Exec != ""
	switch {
	case brings && r.Phase == lifecycle.Done:
		if err := c.resumeStream(r.Exec, intent); err != nil {
			return err
		}
	case brings && r.Op == lifecycle.OpStart && r.Phase == lifecycle.Failed:
		if err := c.svc.Keeper.Drop(c.ioPrefix(r.Exec)); err != nil {
			return fmt.Errorf("drop descriptors: %w", err)
		}
	case r.Op == lifecycle.OpExit:
		return c.lost(r)
	case r.Op == lifecycle.OpKill && r.Phase == lifecycle.Done:
		params, err := decodeParams[killParams](intent.Params)
		if err == nil {
			err = c.kill(ctx, intent, params)
		}
		if err != nil && !errdefs.IsNotFound(err) { // gone means that a signal has reached it
			r.Phase, r.Error = lifecycle.Failed, journaledError(err)
		}
	}
	_, err := c.conclude(ctx, r)
	return err
}

// lost journals that a process may have run and nobody can know how it ended.
func (c *container) lost(r lifecycle.Record) error {
	var err error
	c.do(func() {
		p, ok := c.state().process(r.Exec)
		if !ok {
			return
		}
		now := c.svc.Now()
		p.Exit = &lifecycle.Exit{Status: unknownStatus, At: now, Source: lifecycle.Unknown}
		r.Exit, r.At = p.Exit, now
		_, err = c.commit([]store.Event{c.exitEvent(r.Exec, p)}, r)
	})
	return err
}

// unknownStatus is what containerd itself says where it does not know.
const unknownStatus = 255

// resumeStreams takes over the stdio of every process that was brought up.
func (c *container) resumeStreams() error {
	v := c.state()
	for id, p := range v.Execs {
		if p.Process.Pid != 0 {
			if err := c.resumeStream(id, lifecycle.Record{Op: lifecycle.OpStart}); err != nil {
				return err
			}
		}
	}
	if v.Init.Process.Pid != 0 {
		return c.resumeStream("", lifecycle.Record{Op: lifecycle.OpCreate})
	}
	return nil
}

func (c *container) resumeStream(exec string, intent lifecycle.Record) error {
	stdio := c.params.Stdio
	p, _ := c.state().process(exec)
	if exec != "" {
		params, err := decodeParams[execParams](p.Params)
		if err != nil {
			return err
		}
		stdio = params.Stdio
	}
	io, err := runtime.ResumeIO(c.svc.Keeper, c.ioPrefix(exec), stdio, c.ioOptions(exec, intent))
	if err != nil {
		return fmt.Errorf("%s: resume stdio: %w", processName(exec), err)
	}
	c.streams.put(exec, io)
	if err := c.closeStdin(exec); err != nil {
		return err
	}
	if err := io.Started(); err != nil {
		return fmt.Errorf("%s: resume stdio: %w", processName(exec), err)
	}
	if p, _ = c.state().process(exec); p.Exit != nil { // read again: it may have ended meanwhile
		io.Exited()
	}
	return nil
}

// AdoptBundle takes over what a worker left that died before the keeper had
// the journal: nothing was done then, and nothing stays.
func (s *Service) AdoptBundle(key string, dir *os.File) error {
	path := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	bundle, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("%s: find bundle: %w", key, err)
	}
	if err := os.Remove(filepath.Join(bundle, store.Name)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("%s: remove unused journal: %w", key, err)
	}
	return s.Keeper.Drop(key)
}

// inspector lets recovery look at the world through the runtime.
type inspector struct{ *runtime.Runc }

func (i inspector) Status(ctx context.Context) (string, int, error) {
	st, err := i.State(ctx)
	return st.Status, st.Pid, err
}
