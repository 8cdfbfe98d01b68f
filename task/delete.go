package task

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/internal/crash"
	"perdure/store/lifecycle"
)

const (
	// drainTimeout is how long Delete waits for output that a background
	// child keeps open (the stock shim's number).
	drainTimeout = 10 * time.Second
	// publishTimeout is how long Delete waits for containerd to take the
	// container's last events; what is left goes to the spool.
	publishTimeout = 2 * time.Second
)

type deleteAnswer struct {
	Pid    uint32    `json:"pid"`
	Status uint32    `json:"status"`
	At     time.Time `json:"at"`
}

// Delete removes a process that has ended. The init's Delete removes the
// container; it is answered when its events are published or in the spool,
// because the bundle goes away within milliseconds of the answer.
func (s *Service) Delete(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResponse, error) {
	c, err := s.settled(ctx, r.ID)
	if answer, ok := s.lastAnswers.get(r.ID); ok && r.ExecID == "" && errdefs.IsNotFound(err) {
		return answer.response(), nil
	}
	if err != nil {
		return nil, err
	}
	cmd := command{op: lifecycle.OpDelete, exec: r.ExecID, effect: c.deleteExec}
	if r.ExecID == "" {
		if err := c.waitTold(ctx); err != nil {
			return nil, err
		}
		cmd.effect = c.deleteInit
	}
	var answer deleteAnswer
	err = c.run(ctx, cmd, &answer)
	if r.ExecID == "" && c.state().Init.State == lifecycle.Deleted {
		answer, err = c.deleted(""), c.depart(requestOf(ctx).number) // also a second Delete beside the first
	}
	if err != nil {
		return nil, err
	}
	return answer.response(), nil
}

func (a deleteAnswer) response() *api.DeleteResponse {
	resp := &api.DeleteResponse{Pid: a.Pid, ExitStatus: a.Status}
	if !a.At.IsZero() {
		resp.ExitedAt = timestamppb.New(a.At)
	}
	return resp
}

// lastAnswers are what the last Deletes of inits were answered with, for
// clients that had gone when the answer came and ask again. An id that is
// created again is another's.
type lastAnswers struct {
	mu     sync.Mutex
	ids    []string // oldest first
	answer map[string]deleteAnswer
}

// answersKept bounds lastAnswers: a client asks again within moments.
const answersKept = 16

func (l *lastAnswers) put(id string, a deleteAnswer) {
	l.forget(id)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer == nil {
		l.answer = map[string]deleteAnswer{}
	}
	if l.ids = append(l.ids, id); len(l.ids) > answersKept {
		delete(l.answer, l.ids[0])
		l.ids = l.ids[1:]
	}
	l.answer[id] = a
}

func (l *lastAnswers) get(id string) (deleteAnswer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.answer[id]
	return a, ok
}

func (l *lastAnswers) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = slices.DeleteFunc(l.ids, func(other string) bool { return other == id })
	delete(l.answer, id)
}

// waitTold waits for a stopped init's exit to be told: its execs are dying.
func (c *container) waitTold(ctx context.Context) error {
	for {
		v := c.state()
		if v.Init.State != lifecycle.Stopped || v.InitExitTold() {
			return nil
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return errorf(errdefs.ErrFailedPrecondition, "container %s: delete: processes of its execs are still alive: %v", c.id, ctx.Err())
		}
	}
}

func (c *container) deleteExec(ctx context.Context, intent lifecycle.Record) (int, error) {
	c.drain(ctx, intent.Exec)
	crash.Here(string(lifecycle.OpDelete), intent.Exec, crash.AfterDrain)
	return 0, c.closeStreams(intent.Exec)
}

func (c *container) deleteInit(ctx context.Context, intent lifecycle.Record) (int, error) {
	if err := c.runc.Delete(ctx, intent.IntentName(), true); err != nil {
		return 0, err
	}
	crash.Here(string(lifecycle.OpDelete), "", crash.AfterRuntime)
	if err := c.awaitEnd(ctx); err != nil {
		return 0, err
	}
	c.drain(ctx, "") // now: an init that was never started has kept its output open
	crash.Here(string(lifecycle.OpDelete), "", crash.AfterDrain)
	for _, exec := range c.state().execIDs() {
		if err := c.closeStreams(exec); err != nil {
			return 0, err
		}
	}
	if err := c.closeStreams(""); err != nil {
		return 0, err
	}
	crash.Here(string(lifecycle.OpDelete), "", crash.AfterStreams)
	if err := c.svc.Machine.UnmountRootfs(c.journal.Meta().Bundle); err != nil {
		return 0, fmt.Errorf("container %s: unmount rootfs: %w", c.id, err)
	}
	return 0, nil
}

// endTimeout is how long the exit of an init that the runtime has killed may
// take to arrive.
const endTimeout = 10 * time.Second

// awaitEnd waits for the exit of an init that was never started, and so killed
// by its deletion. An exit that does not come is recorded as unknown, and so is
// that of an init which was to be restored and never came to be.
func (c *container) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		v := c.state()
		switch {
		case v.Init.Exit != nil:
			return nil
		case v.Init.Process.Pid == 0:
			return c.giveInitUp()
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return c.giveInitUp()
		}
	}
}

// giveInitUp records an unknown exit where none has come.
func (c *container) giveInitUp() (err error) {
	c.do(func() {
		if p := c.state().Init; p.Exit == nil {
			err = c.commitExit("", c.lost(p))
		}
	})
	if err == nil {
		c.initEnded()
	}
	return err
}

// closeStreams lets a process's descriptors go, also those of a start that a
// dead worker began and nobody repeated.
func (c *container) closeStreams(exec string) error {
	had, err := c.streams.close(exec)
	if !had {
		err = c.svc.Machine.CloseIO(c.svc.Keeper, c.ioPrefix(exec))
	}
	if err != nil {
		return fmt.Errorf("container %s: %s: close stdio: %w", c.id, processName(exec), err)
	}
	return nil
}

func (c *container) drain(ctx context.Context, exec string) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	c.streams.drained(ctx, exec)
}

// deleted is what Delete answers of a process.
func (c *container) deleted(exec string) deleteAnswer {
	p, _ := c.state().process(exec)
	answer := deleteAnswer{Pid: uint32(p.Process.Pid)}
	if p.Exit != nil {
		answer.Status, answer.At = p.Exit.Status, p.Exit.At
	}
	return answer
}

// depart ends a deleted container's life in this worker: its events go out, or
// to the spool, and then nothing of it is kept. request is the Delete that
// waits, 0 if none does.
func (c *container) depart(request uint64) error {
	defer c.departing.take()()
	switch {
	case c.gone:
		return nil
	case c.svc.closed():
		return errLeaving
	}
	c.svc.lastAnswers.put(c.id, c.deleted(""))
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	if err := c.outbox.drained(ctx); err != nil {
		if c.svc.closed() {
			return fmt.Errorf("container %s: events are not published: %w", c.id, err)
		}
		if err := c.toSpool(); err != nil {
			return fmt.Errorf("container %s: events are neither published nor spooled: %w", c.id, err)
		}
		crash.Here(string(lifecycle.OpDelete), "", crash.AfterSpool)
		c.gone = true
		return nil
	}
	crash.Here(string(lifecycle.OpDelete), "", crash.AfterPublish)
	c.release(request)
	c.gone = true
	return nil
}

// release forgets a container whose events have all arrived. The keeper lets
// its descriptors go when the answer to request is out: until then a worker
// that is killed is followed by one that can give it.
func (c *container) release(request uint64) {
	c.removeSpool()
	c.close()
	crash.Here(string(lifecycle.OpDelete), "", crash.BeforeRelease)
	if err := c.svc.Keeper.DropAfter(c.key(), request); err != nil {
		c.svc.warn(c.id, "drop descriptors", err)
	}
	c.svc.remove(c)
	crash.Here(string(lifecycle.OpDelete), "", crash.AfterRelease)
	c.svc.leaveIfWanted(0)
}

// close ends the actor and closes the journal; a second call does nothing.
func (c *container) close() {
	closed := false
	c.do(func() { closed = true; c.stop() })
	if closed {
		c.leaveLog()
		c.outbox.stop()
		_ = c.journal.Close()
	}
}

// Shutdown ends the keeper if no task exists; while one does it is remembered,
// and carried out after the last delete.
func (s *Service) Shutdown(ctx context.Context, _ *api.ShutdownRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	s.wanted = true
	s.mu.Unlock()
	if err := s.Keeper.WantShutdown(); err != nil {
		return nil, fmt.Errorf("shutdown of the shim of %s: %w", s.Group, err)
	}
	crash.Here("shutdown", "", crash.AfterOutcome)
	s.leaveIfWanted(requestOf(ctx).number)
	return &emptypb.Empty{}, nil
}

// leaveAgain is when to ask the keeper again that has refused to leave: for
// 5 s after a start was answered with its socket it waits for that client.
const leaveAgain = 6 * time.Second

// leaveIfWanted carries out a Shutdown if no task is left; later, where the
// keeper has just been promised to a new member of the pod.
func (s *Service) leaveIfWanted(request uint64) {
	s.mu.Lock()
	wanted := s.wanted
	s.mu.Unlock()
	if !wanted || !s.empty() {
		return
	}
	crash.Here("shutdown", "", crash.BeforeEffect)
	if err := s.Keeper.Leave(request); err != nil {
		log.L.WithError(err).Info("the keeper stays for now")
		s.leaveLater()
	}
}

func (s *Service) leaveLater() { time.AfterFunc(leaveAgain, func() { s.leaveIfWanted(0) }) }
