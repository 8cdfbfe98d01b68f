package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
)

// Adopt takes over a container from its journal. When it returns the container
// answers reads and its exits find it. What the last worker left half done is
// settled beside: commands wait for an open create, and for those open intents
// that exclude them. oldest is the lowest request that still waits for an
// answer.
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
	case c.failedCreate() && Owed(c.instance, oldest):
		close(c.adopted)
		s.enter(c) // the replayed Create answers, and forgets it
		c.expire(func() { c.vanish(false) })
	case v.Init.State == lifecycle.None && v.Last == 0:
		close(c.adopted)
		c.forget(Owed(c.instance, oldest), true) // killed before the intent of its create
	case v.Init.State == lifecycle.None && len(v.Open) == 0:
		s.enter(c)
		s.idle.begin()
		go func() { // its create was undone or has failed, and what it left may be there still
			defer s.idle.end()
			defer close(c.adopted)
			c.vanish(Owed(c.instance, oldest))
		}()
	default:
		s.enter(c)
		c.adoptOOM() // before exits come, which may have to be explained
		c.claimLive()
		closed := s.exits.opened()
		s.idle.begin()
		go func() {
			defer s.idle.end()
			defer closed()
			c.recover(oldest)
		}()
	}
	return nil
}

// Adopted says that everything there is has been adopted. Only from now on can it
// be said that no task is left, and a Shutdown of an earlier worker be carried
// out: it may have died over it.
func (s *Service) Adopted() {
	s.mu.Lock()
	s.wanted = s.wanted || s.ShutdownWanted
	s.mu.Unlock()
	s.leaveIfWanted(0)
}

// Owed reports whether the create that made an instance still waits for its
// answer: then the keeper replays it, and the client has its fifos open.
func Owed(instance string, oldest uint64) bool {
	number, err := strconv.ParseUint(instance, 10, 64)
	return err == nil && number >= oldest
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
			c.expire(func() { c.departUnasked() })
			return
		}
	}
	c.svc.departing(c)
	go c.departUnasked()
}

func (c *container) departUnasked() {
	if err := c.depart(0); err != nil {
		c.svc.warn(c.id, "publish what a deleted container left", err)
	}
}

// failedCreate reports whether all there is of the container is the answer that
// it could not be made.
func (c *container) failedCreate() bool {
	v := c.state()
	for _, r := range v.Answers {
		if r.Op == lifecycle.OpCreate && r.Phase == lifecycle.Failed {
			return v.Init.State == lifecycle.None && len(v.Open) == 0
		}
	}
	return false
}

// owedTimeout is how long an answer is kept for a request that seems to be
// unanswered. The keeper replays requests as soon as a worker has said hello, so
// one that has not come by then has lost its client.
const owedTimeout = 10 * time.Second

// expire ends what was kept for a replay that does not come.
func (c *container) expire(end func()) {
	time.AfterFunc(owedTimeout, func() {
		if !c.isGone() {
			end()
		}
	})
}

// claimLive has the exits of the running processes delivered to this container.
func (c *container) claimLive() {
	v := c.state()
	for _, id := range append([]string{""}, v.execIDs()...) {
		if p, ok := v.process(id); ok && p.Process.Pid != 0 && p.Exit == nil {
			c.svc.exits.claim(c, id, p.Process)
		}
	}
}

// troubles are the open intents that cannot be settled for now, and why.
type troubles struct {
	mu   sync.Mutex
	why  map[uint64]error // by the intent's sequence
	news chan struct{}    // closed and replaced when one comes
}

// note takes an error for an intent, or nil when it is settled.
func (t *troubles) note(intent uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.why, intent)
		return
	}
	t.why[intent] = err
	close(t.news)
	t.news = make(chan struct{})
}

// of is why an intent is not settled, nil if nothing is known to be wrong.
func (t *troubles) of(intent uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.why[intent]
}

// heard is closed with the next trouble. It is taken before one looks at those
// that are there.
func (t *troubles) heard() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.news
}

const (
	recoverFirst = 100 * time.Millisecond
	recoverLast  = 10 * time.Second
)

// recover takes over the stdio and settles the open intents, each on its own: one
// that waits for a slow runtime holds up nobody whom it does not exclude.
func (c *container) recover(oldest uint64) {
	if err := c.tellOOM(false); err != nil {
		c.svc.warn(c.id, "an OOM could not be journaled; it is tried again", err)
		c.oomHeard()
	}
	c.resumeStreams()
	crash.Here("recover", "", crash.AfterStreams)
	c.killRest()
	open := c.state().Open
	if create, ok := c.state().Opened(lifecycle.OpCreate, ""); ok {
		c.settleAtLast(create)
		switch owed := Owed(c.instance, oldest); {
		case c.state().Init.State != lifecycle.None:
		case owed && c.failedCreate():
			c.expire(func() { c.vanish(false) }) // the replayed Create answers, and does so
		default:
			c.vanish(owed)
		}
	}
	close(c.adopted)
	var settling sync.WaitGroup
	for _, intent := range open {
		if intent.Op != lifecycle.OpCreate {
			settling.Go(func() { c.settleAtLast(intent) })
		}
	}
	settling.Wait()
}

// settleAtLast settles an intent; where the world does not let it (the runtime
// cannot be run, the disk is full) it tries again.
func (c *container) settleAtLast(intent lifecycle.Record) {
	for wait := recoverFirst; ; wait = min(2*wait, recoverLast) {
		err := c.settleOpen(intent)
		c.troubles.note(intent.Seq, err)
		if err == nil {
			return
		}
		c.svc.warn(c.id, "re-adoption is not through yet", err)
		select {
		case <-time.After(wait):
		case <-c.stopped:
			return
		}
	}
}

// settleOpen concludes an intent that a dead worker left open.
func (c *container) settleOpen(intent lifecycle.Record) error {
	ctx, cancel := c.untilGivenUp(context.Background())
	defer cancel()
	outcome, err := c.judge(ctx, intent)
	if err != nil {
		return fmt.Errorf("judge %s: %w", intent.IntentName(), err)
	}
	if err := crash.Fail("recover", "", crash.BeforeSettle); err != nil {
		return fmt.Errorf("settle %s: %w", intent.IntentName(), err)
	}
	concluding, cancel := context.WithTimeout(context.Background(), effectTimeout)
	defer cancel()
	if err := c.settle(concluding, intent, outcome); err != nil {
		return fmt.Errorf("settle %s: %w", intent.IntentName(), err)
	}
	crash.Here("recover", "", crash.AfterSettle)
	c.takeExits() // one may have waited for this start to be told
	return nil
}

// judge has recovery decide an intent. The runtime's words are given the class
// that they have when no worker dies.
func (c *container) judge(ctx context.Context, intent lifecycle.Record) (lifecycle.Record, error) {
	outcome, err := c.svc.Settle(ctx, intent, c.inspector())
	if err != nil || outcome.Phase != lifecycle.Failed {
		return outcome, err
	}
	switch logged := c.logged(intent); {
	case logged == nil:
	case outcome.Exit == nil:
		outcome.Error = journaledError(logged)
	default:
		outcome.Error.Message += ": " + logged.Error()
	}
	return outcome, err
}

// logged is the runtime's own error of a failed command.
func (c *container) logged(intent lifecycle.Record) error {
	name := intent.IntentName()
	switch {
	case intent.Op == lifecycle.OpCheckpoint:
		params, err := decodeParams[runtime.CheckpointOptions](intent.Params)
		return errors.Join(err, c.runc.CheckpointError(name, params))
	case intent.Op == lifecycle.OpStart && intent.Exec == "" && c.restores():
		return c.runc.RestoreError(name, *c.params.Image)
	case intent.Op == lifecycle.OpStart && intent.Exec != "":
		return c.runc.LoggedError(name, "exec")
	}
	return c.runc.LoggedError(name, string(intent.Op))
}

// settle carries out one judgement: streams first, so that an outcome is not
// told before its process's output has a reader; then the outcome, by the same
// path as a command's.
func (c *container) settle(ctx context.Context, intent, r lifecycle.Record) error {
	brings := c.bringsUp(r.Op, r.Exec)
	switch {
	case brings && r.Phase == lifecycle.Done:
		if err := c.resumeStream(r.Exec, intent); err != nil {
			return err
		}
	case brings && r.Op == lifecycle.OpStart && r.Phase == lifecycle.Failed:
		if err := c.closeStreams(r.Exec); err != nil {
			return err
		}
	case r.Op == lifecycle.OpPause && r.Phase != lifecycle.Done:
		c.thaw()
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

// resumeStreams takes over the stdio of every process that was brought up. One
// that cannot be taken over is said, and does not hold up the rest.
func (c *container) resumeStreams() {
	v := c.state()
	for _, id := range append([]string{""}, v.execIDs()...) {
		op := lifecycle.OpStart
		if id == "" {
			op = c.initOp()
		}
		if p, _ := v.process(id); p.Process.Pid == 0 {
			continue
		}
		if err := c.resumeStream(id, lifecycle.Record{Op: op}); err != nil {
			c.svc.warn(c.id, "the stdio of a process is lost", err)
		}
	}
}

func (c *container) resumeStream(exec string, intent lifecycle.Record) error {
	p, _ := c.state().process(exec)
	stdio, err := c.stdioOf(p)
	if err != nil {
		return err
	}
	io, err := c.svc.Machine.ResumeIO(c.svc.Keeper, c.ioPrefix(exec), stdio, c.ioOptions(exec, intent))
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

// Abandon takes back what a worker left that died before the keeper had the
// journal: nothing was done then, and nothing stays. dir is the bundle, nil
// where not even that is known. Where the create is owed its fifos are held on.
func (s *Service) Abandon(key string, dir *os.File, owed bool) error {
	if dir != nil {
		if err := removeJournal(key, dir); err != nil {
			return err
		}
	}
	crash.Here("abandon", "", crash.AfterRecords)
	if owed {
		return s.Keeper.Drop(key + "/bundle")
	}
	return s.letGo(key, 0)
}

func removeJournal(key string, dir *os.File) error {
	path := fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	bundle, err := os.Readlink(path)
	if err != nil {
		return fmt.Errorf("%s: find bundle: %w", key, err)
	}
	if err := removeRecords(bundle); err != nil {
		return fmt.Errorf("%s: remove unused journal: %w", key, err)
	}
	return nil
}

// inspector lets recovery look at the world through the runtime.
type inspector struct {
	Runtime
	container *container
}

func (c *container) inspector() inspector { return inspector{c.runc, c} }

func (i inspector) Dumped(intent lifecycle.Record) bool {
	params, err := decodeParams[runtime.CheckpointOptions](intent.Params)
	return err == nil && i.container.svc.Machine.IsImage(params.ImagePath, intent.At)
}

func (i inspector) Restores() bool { return i.container.restores() }

func (i inspector) Stray(exec string) (int, bool) {
	return i.FindProcess(i.container.svc.Keeper, i.container.ioPrefix(exec))
}

func (i inspector) Status(ctx context.Context) (string, error) {
	st, err := i.State(ctx)
	return st.Status, err
}
