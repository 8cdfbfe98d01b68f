package soak

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/chaos-tests/checker"
)

// work does the steps of a life. Execs go on beside the steps that follow.
func (l *life) work() error {
	if !l.plan.Ending.started() || l.stillborn {
		return nil
	}
	for i, st := range l.plan.Steps {
		pause(l.ctx, st.Delay)
		if err := l.step(i, st); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, st.Op, err)
		}
		if l.ctx.Err() != nil {
			return nil
		}
	}
	l.execs.Wait()
	for i := range l.plan.Left {
		l.leave(l.execID(len(l.plan.Steps) + i))
	}
	return nil
}

// execID is the id of an exec: no other of the run has it.
func (l *life) execID(i int) string { return fmt.Sprintf("%s-e%d", lifePrefix(l.n), i) }

// lifePrefix is how the ids of all execs of the nth life of a container begin.
func lifePrefix(n int) string { return fmt.Sprintf("l%d", n) }

// step does one step.
func (l *life) step(i int, st step) error {
	switch st.Op {
	case "exec":
		l.execs.Go(func() { l.runExec(l.execID(i), st.Exec) })
	case "join":
		l.execs.Wait()
	case "pause":
		return l.freeze(i)
	case "update":
		return l.update(st.Value)
	case "signal":
		return l.harmless(st.Value)
	case "pids":
		return l.pids()
	case "stats":
		return l.stats()
	case "state":
		return l.expect(checker.Running)
	case "refused":
		return l.refused()
	case "resize":
		return l.resize("", 40)
	case "journal":
		return l.journal()
	}
	return nil
}

// expect asks for the init's state, which can be no other.
func (l *life) expect(state string) error {
	if now := l.state(""); l.ctx.Err() == nil && (!now.ok() || now.State != state) {
		return fmt.Errorf("it should be %s: %s", state, now)
	}
	return nil
}

func (l *life) pauseRequest() request {
	return request{op: checker.OpPause, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		_, err := t.Pause(ctx, &tasks.PauseTaskRequest{ContainerID: l.slot.ID})
		return err
	}}
}

// paused has the container paused.
func (l *life) paused() error {
	a := l.settle(l.pauseRequest(), func(now answer) bool { return now.State == checker.Paused })
	if !a.ok() {
		return refusedOr(l, a)
	}
	return l.expect(checker.Paused)
}

// freeze pauses and resumes; between, an exec is refused.
func (l *life) freeze(i int) error {
	l.pausing.Lock()
	defer l.pausing.Unlock()
	if err := l.paused(); err != nil || l.ctx.Err() != nil {
		return err
	}
	p, err := l.attach(l.execID(i), false, false)
	if err != nil {
		return err
	}
	defer p.detach()
	a := l.settle(l.addRequest(p, &execPlan{Kind: execOutput}), func(now answer) bool { return now.ok() })
	if l.ctx.Err() == nil && !a.is(codes.FailedPrecondition) {
		return fmt.Errorf("an exec in a paused container should be refused: %s", a)
	}
	a = l.settle(request{op: checker.OpResume, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		_, err := t.Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: l.slot.ID})
		return err
	}}, func(now answer) bool { return now.State == checker.Running })
	if !a.ok() {
		return refusedOr(l, a)
	}
	return l.expect(checker.Running)
}

// update changes the CPU shares, and looks whether the kernel has them.
func (l *life) update(shares int) error {
	value := uint64(shares)
	resources, err := typeurl.MarshalAny(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &value}})
	if err != nil {
		return err
	}
	a := l.settle(request{op: checker.OpUpdate, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		_, err := t.Update(ctx, &tasks.UpdateTaskRequest{
			ContainerID: l.slot.ID, Resources: &anypb.Any{TypeUrl: resources.GetTypeUrl(), Value: resources.GetValue()},
		})
		return err
	}}, nil)
	if !a.ok() {
		return refusedOr(l, a)
	}
	if got := l.s.shares(l.slot.ID); got != "" && got != fmt.Sprint(shares) {
		return fmt.Errorf("%s, and the cgroup has %s shares, not %d", a, got, shares)
	}
	return nil
}

// harmless sends a signal that the init survives, and looks whether it has come.
func (l *life) harmless(which int) error {
	before := l.count("signals", "1")
	sig, all := syscall.SIGUSR1, false
	if which == 0 {
		sig, all = syscall.SIGCONT, true
	}
	a := l.kill("", sig, all)
	if !a.ok() || sig != syscall.SIGUSR1 {
		return refusedOr(l, a)
	}
	return l.until("the signal that was acknowledged", func() error {
		if l.count("signals", "1") == before {
			return errors.New("it has not come")
		}
		return nil
	})
}

// kill sends a signal through containerd. A process that has ended meanwhile is found gone by who has to ask twice.
func (l *life) kill(exec string, sig syscall.Signal, all bool) answer {
	if all {
		defer l.signalsAll()()
	}
	times := 0
	a := l.settle(request{op: checker.OpKill, exec: exec, signal: int(sig), do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		times++
		_, err := t.Kill(ctx, &tasks.KillRequest{ContainerID: l.slot.ID, ExecID: exec, Signal: uint32(sig), All: all})
		return err
	}}, func(now answer) bool { return now.State == checker.Stopped || now.State == "" })
	if times > 1 && a.is(codes.NotFound) {
		a.err = nil
	}
	return a
}

// span is a time in ticks.
type span struct{ from, to uint64 }

// signalsAll notes that all processes are being signalled until the returned function is called.
func (l *life) signalsAll() (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &span{l.s.clock.tick(), math.MaxUint64}
	l.toAll = append(l.toAll, s)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		s.to = l.s.clock.tick()
	}
}

// signalledAll says whether all processes were being signalled during a call.
func (l *life) signalledAll(a answer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.toAll, func(s *span) bool { return s.from <= a.Ended && s.to >= a.Began })
}

func (l *life) pids() error {
	var pids []uint32
	a := l.settle(request{op: checker.OpPids, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		r, err := t.ListPids(ctx, &tasks.ListPidsRequest{ContainerID: l.slot.ID})
		if err == nil {
			pids = nil
			for _, p := range r.Processes {
				pids = append(pids, p.Pid)
			}
		}
		return err
	}}, nil)
	if !a.ok() {
		return refusedOr(l, a)
	}
	for _, pid := range pids {
		if int(pid) == l.pid {
			return nil
		}
	}
	return fmt.Errorf("the init, process %d, is not among %v", l.pid, pids)
}

func (l *life) stats() error {
	var found int
	a := l.settle(request{op: "stats", do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		r, err := t.Metrics(ctx, &tasks.MetricsRequest{Filters: []string{"id==" + l.slot.ID}})
		if err == nil {
			found = len(r.Metrics)
		}
		return err
	}}, nil)
	if !a.ok() {
		return refusedOr(l, a)
	}
	if found != 1 {
		return fmt.Errorf("%d metrics, want one", found)
	}
	return nil
}

// refused asks for what a running container refuses.
func (l *life) refused() error {
	id := l.slot.ID
	for _, bad := range []struct {
		request
		code codes.Code
	}{
		{request{op: checker.OpStart, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
			_, err := t.Start(ctx, &tasks.StartRequest{ContainerID: id})
			return err
		}}, codes.FailedPrecondition},
		{request{op: checker.OpResume, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
			_, err := t.Resume(ctx, &tasks.ResumeTaskRequest{ContainerID: id})
			return err
		}}, codes.FailedPrecondition},
		{request{op: checker.OpDelete, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
			_, err := t.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
			return err
		}}, codes.FailedPrecondition},
		{request{op: checker.OpKill, exec: "nobody", signal: 9, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
			_, err := t.Kill(ctx, &tasks.KillRequest{ContainerID: id, ExecID: "nobody", Signal: 9})
			return err
		}}, codes.NotFound},
	} {
		if a := l.settle(bad.request, nil); l.ctx.Err() == nil && !a.is(bad.code) {
			return fmt.Errorf("it should be %s: %s", bad.code, a)
		}
	}
	return nil
}

// resize sets the size of a terminal; where there is none it does nothing.
func (l *life) resize(exec string, rows uint32) error {
	a := l.settle(request{op: "resize", exec: exec, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		_, err := t.ResizePty(ctx, &tasks.ResizePtyRequest{ContainerID: l.slot.ID, ExecID: exec, Width: 100, Height: rows})
		return err
	}}, nil)
	return refusedOr(l, a)
}

// journalLimit is how long `perdure journal` may take: a worker that is stopped answers late.
const journalLimit = 60 * time.Second

// journal has the container's journal compared with the state that was folded from it.
func (l *life) journal() error {
	ctx, cancel := context.WithTimeout(l.ctx, journalLimit)
	defer cancel()
	began := l.s.clock.tick()
	out, err := exec.CommandContext(ctx, filepath.Join(l.s.bin, "perdure"), "journal", l.s.h.Bundle(l.s.h.Namespace, l.slot.ID)).CombinedOutput()
	l.s.stats.count("journal", "read", err)
	if err == nil || l.ctx.Err() != nil {
		return nil
	}
	if len(l.s.faults.during(l.slot, began, l.s.clock.tick(), faultStop, faultDisk)) > 0 && !strings.Contains(string(out), "damaged") {
		return nil // it waits for the worker for 30 s
	}
	return fmt.Errorf("%w: %s", err, out)
}
