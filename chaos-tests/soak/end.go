package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/wait"
)

// end brings the init to its end.
func (l *life) end() error {
	l.mayEnd()
	if l.stillborn {
		return nil
	}
	switch l.plan.Ending {
	case endItself:
		return l.signalInit(unix.SIGUSR2)
	case endTerm:
		return refusedOr(l, l.kill("", syscall.SIGTERM, false))
	case endKill, endCreated:
		return refusedOr(l, l.kill("", syscall.SIGKILL, false))
	case endKillAll:
		return refusedOr(l, l.kill("", syscall.SIGKILL, true))
	case endStranger, endLost:
		return l.signalInit(unix.SIGKILL)
	case endPaused:
		if err := l.paused(); err != nil {
			return err
		}
		return refusedOr(l, l.kill("", syscall.SIGKILL, false))
	}
	return nil
}

// statuses are what the init can truly end with.
func (l *life) statuses() []uint32 {
	if l.stillborn {
		return []uint32{1}
	}
	switch l.plan.Ending {
	case endItself, endTerm, endQuick:
		return []uint32{l.plan.Code}
	case endUnstarted:
		return nil // nobody is told
	}
	return []uint32{signalled(syscall.SIGKILL)}
}

// ended waits until the end is told, and asks for what a task that has ended refuses.
func (l *life) ended() error {
	if l.plan.Ending == endUnstarted {
		return nil
	}
	a, err := l.told(l.exit, "")
	if err != nil || l.ctx.Err() != nil {
		return err
	}
	if !a.ok() {
		return unexpected(a)
	}
	if !slices.Contains(l.statuses(), a.Status) {
		return fmt.Errorf("it can have ended with %v only: %s", l.statuses(), a)
	}
	l.lefts.Wait()
	if err := l.expect(checker.Stopped); err != nil {
		return err
	}
	if l.n%3 == 0 {
		if err := l.journal(); err != nil {
			return err
		}
	}
	if l.n%2 == 0 {
		return l.unkillable()
	}
	return nil
}

// unkillable asks for a signal to a task that has ended: it is not found.
func (l *life) unkillable() error {
	a := l.kill("", syscall.SIGTERM, false)
	if l.ctx.Err() == nil && !a.is(codes.NotFound) && (!a.ok() || a.Code == checker.OK) {
		return fmt.Errorf("a signal to a task that has ended should not find it: %s", a)
	}
	return nil
}

// delete deletes the task.
func (l *life) delete() error {
	times := 0
	a := l.settle(request{op: checker.OpDelete, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
		times++
		r, err := t.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: l.slot.ID})
		if err == nil {
			c.Pid, c.Status, c.ExitedAt = int(r.Pid), r.ExitStatus, at(r.ExitedAt)
		}
		return err
	}}, l.forgotten)
	if l.ctx.Err() != nil {
		return nil
	}
	if !a.ok() && !(times > 1 && a.is(codes.NotFound)) {
		return unexpected(a)
	}
	l.mu.Lock()
	l.deleted, l.left = time.Now(), l.s.clock.tick()
	l.mu.Unlock()
	if l.plan.Ending == endUnstarted { // whoever waits for it is answered, one way or the other
		if _, err := l.told(l.exit, ""); err != nil {
			return err
		}
	}
	return l.init.end()
}

// forgotten says whether containerd knows of no task. It may know of one that the shim has none of any more, where it has
// given up waiting for the end of a delete; then that is to be asked for again.
func (l *life) forgotten(now answer) bool {
	return now.State == "" && strings.Contains(now.Message, "task "+l.slot.ID+" not found")
}

// close ends the record of the life and has it judged beside the next one.
func (l *life) close() {
	if l.ctx.Err() != nil {
		return
	}
	run := checker.Run{
		Target: l.target(""), Starts: l.starts("init"), Pid: l.pid, Start: l.start, Ended: true, Statuses: l.statuses(),
	}
	want := ""
	if l.stillborn {
		run.Starts = checker.NotCounted // its start may have been answered
	} else if l.plan.Ending.started() {
		want = initOutput(l.slot, l.plan)
	}
	run.Streams = l.streams(l.init, want)
	l.noteRun(run)
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.s.judging.Go(func() { l.judge() })
}

// release closes the client's ends of what is still there.
func (l *life) release() {
	l.execs.Wait()
	l.lefts.Wait()
	l.init.detach()
}

// deliveryLimit is how long the last events of a life may take to arrive, with a receiver that is away for a while.
const deliveryLimit = 2 * time.Minute

// judge waits for the events of the life, and checks all of it.
func (l *life) judge() {
	err := wait.Until(l.ctx, deliveryLimit, "the event that the task was deleted", func() error {
		for _, e := range l.s.receiver.look(l.slot.ID, l.mine) {
			if e.Name == "delete" && e.Exec == "" {
				return nil
			}
		}
		return errors.New("it has not arrived")
	})
	if l.ctx.Err() != nil {
		return
	}
	if err != nil {
		l.fail(err)
		return
	}
	h := checker.History{Calls: l.calls, Runs: l.runs, Over: true, Events: l.s.receiver.look(l.slot.ID, l.mine)}
	for i := range h.Events {
		h.Events[i].Target = l.target(h.Events[i].Exec)
	}
	if errs := checker.Check(h); len(errs) > 0 {
		l.fail(errors.Join(errs...))
		return
	}
	l.s.receiver.forget(l.slot.ID, l.n, l.mine)
	l.s.stats.life(l)
}

// mine says whether an event is of this life: other ones have other pids and other execs. What has neither has arrived
// meanwhile, or is late and has a time of its own, by a clock that may have jumped.
func (l *life) mine(e checker.Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case e.Exec != "":
		return lifeOf(e.Exec) == lifePrefix(l.n)
	case e.Pid != 0:
		return e.Pid == l.pid
	case e.At < l.began || e.Time.Before(l.created.Add(-clockStep)):
		return false
	}
	return l.left == 0 || e.At <= l.left || e.Time.Before(l.deleted)
}
