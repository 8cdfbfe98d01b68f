package down

import (
	"context"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	apitask "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/harness"
)

// clockSlack is what may lie between the end of a process as the test sees it
// and the keeper's look at the clock.
const clockSlack = time.Second

// checkEvents waits for all events, in order, and compares those of exits.
func (s *scene) checkEvents() {
	for _, c := range s.containers {
		want := []string{"create", "start"}
		for i := range kinds {
			want = append(want, "exec-added "+execName(c.ID, i), "exec-started "+execName(c.ID, i))
		}
		for i := range kinds {
			want = append(want, "exit "+execName(c.ID, i))
		}
		if c != s.survivor.c {
			want = append(want, "exit")
		}
		if _, err := s.h.Events.Expect(eventLimit, c.ID, want...); err != nil {
			s.t.Error(err)
		}
	}
}

// checkEnd compares all that containerd says of a process that has ended with
// what happened.
func (s *scene) checkEnd(ctx context.Context, p *process) {
	s.t.Helper()
	exit := s.checkExitEvent(p)
	status, waited := s.ask(ctx, p)
	if status.Status != apitask.Status_STOPPED || status.ExitStatus != p.code || !status.ExitedAt.AsTime().Equal(exit.ExitedAt) {
		s.t.Errorf("%s: State says %+v, want %d at %v", p.name, status, p.code, exit.ExitedAt)
	}
	if waited.Code != p.code || !waited.At.Equal(exit.ExitedAt) {
		s.t.Errorf("%s: Wait says %+v, want %d at %v", p.name, waited, p.code, exit.ExitedAt)
	}
	s.checkOutput(p)
	var deleted *client.ExitStatus
	var err error
	if p.e != nil {
		deleted, err = p.e.Delete(ctx)
	} else {
		harness.Check(s.t, p.c.CheckJournal(ctx))
		deleted, err = p.c.Task.Delete(ctx)
		p.c.Task = nil
	}
	harness.Check(s.t, err)
	if deleted.ExitCode() != p.code || !deleted.ExitTime().Equal(exit.ExitedAt) {
		s.t.Errorf("%s: Delete says %d at %v, want %d at %v", p.name, deleted.ExitCode(), deleted.ExitTime(), p.code, exit.ExitedAt)
	}
	if p.e == nil {
		_, err := s.h.Events.Await(eventLimit, p.c.ID, "delete")
		harness.Check(s.t, err)
	}
}

func (s *scene) checkExitEvent(p *process) harness.Event {
	s.t.Helper()
	name := "exit"
	if p.e != nil {
		name += " " + p.name
	}
	e, err := s.h.Events.Await(eventLimit, p.c.ID, name)
	harness.Check(s.t, err)
	if e.Status != p.code || int(e.Pid) != p.pid {
		s.t.Errorf("%s: the event says %d of pid %d, want %d of %d", p.name, e.Status, e.Pid, p.code, p.pid)
	}
	if e.ExitedAt.Before(p.opened) || e.ExitedAt.After(p.ended.Add(clockSlack)) {
		s.t.Errorf("%s: ended at %v says the event, it was between %v and %v", p.name, e.ExitedAt, p.opened, p.ended)
	}
	return e
}

// ask returns what State and Wait say of a process.
func (s *scene) ask(ctx context.Context, p *process) (*apitask.Process, harness.Exit) {
	s.t.Helper()
	request, wait := &tasks.GetRequest{ContainerID: p.c.ID}, p.c.Wait
	if p.e != nil {
		harness.Check(s.t, p.e.Load(ctx))
		request.ExecID, wait = p.e.ID(), p.e.AwaitExit
	}
	// containerd's client drops an exec's time, its API does not.
	response, err := s.h.Client().TaskService().Get(ctx, request)
	harness.Check(s.t, err)
	exit, err := wait(ctx)
	harness.Check(s.t, err)
	return response.Process, exit
}

// checkOutput waits for all of a process's output and, where the client was
// there all the time, for its end: a fifo that is opened after that has no end.
func (s *scene) checkOutput(p *process) {
	s.t.Helper()
	want := p.kind.output()
	if p.kind.detached {
		harness.Check(s.t, p.out.Attach())
		if err := p.out.Stdout.Await(eventLimit, want); err != nil {
			s.t.Errorf("%s: %d bytes of output have arrived, want %d", p.name, len(p.out.Stdout.String()), len(want))
		}
	} else if err := p.out.AwaitEnd(eventLimit); err != nil {
		s.t.Errorf("%s: %v", p.name, err)
	}
	if got := p.out.Stdout.String(); got != want {
		s.t.Errorf("%s: the output is %d bytes, want %d", p.name, len(got), len(want))
	}
}

// checkSurvivor lets the init end that has lived through all of it.
func (s *scene) checkSurvivor(ctx context.Context) {
	p := s.survivor
	status, err := p.c.Task.Status(ctx)
	harness.Check(s.t, err)
	if status.Status != client.Running || int(p.c.Task.Pid()) != p.pid {
		s.t.Errorf("%s: State says %+v of pid %d, want running, pid %d", p.name, status, p.c.Task.Pid(), p.pid)
	}
	if r, err := p.c.Sh(ctx, "after", "exit 21"); err != nil || r.Code != 21 {
		s.t.Errorf("%s: an exec afterwards ended with %d: %v", p.name, r.Code, err)
	}
	s.end(ctx, []*process{p})
	s.checkEnd(ctx, p)
}
