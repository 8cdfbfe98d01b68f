package task

import (
	"context"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/store/lifecycle"
)

// State tells a process's status from the journal's folded state. A process is
// stopped once its exit may be told: an init's after every exec's.
func (s *Service) State(_ context.Context, r *api.StateRequest) (*api.StateResponse, error) {
	c, err := s.living(r.ID)
	if err != nil {
		return nil, err
	}
	v := c.state()
	p, ok := v.process(r.ExecID)
	if !ok {
		return nil, errorf(errdefs.ErrNotFound, "container %s: %s: not found", r.ID, processName(r.ExecID))
	}
	stdio, err := c.stdioOf(p)
	if err != nil {
		return nil, err
	}
	resp := &api.StateResponse{
		ID: r.ID, ExecID: r.ExecID, Bundle: c.journal.Meta().Bundle, Pid: uint32(p.Process.Pid), Status: v.status(r.ExecID, p),
		Stdin: stdio.Stdin, Stdout: stdio.Stdout, Stderr: stdio.Stderr, Terminal: stdio.Terminal,
	}
	if resp.Status == task.Status_STOPPED && p.Exit != nil {
		resp.ExitStatus, resp.ExitedAt = p.Exit.Status, timestamppb.New(p.Exit.At)
	}
	return resp, nil
}

func (v *view) status(exec string, p lifecycle.ProcessState) task.Status {
	switch p.State {
	case lifecycle.Created:
		return task.Status_CREATED
	case lifecycle.Running:
		if _, pausing := v.Opened(lifecycle.OpPause, exec); pausing {
			return task.Status_PAUSING
		}
		return task.Status_RUNNING
	case lifecycle.Paused:
		return task.Status_PAUSED
	case lifecycle.Stopped:
		if exec == "" && !v.InitExitTold() {
			return task.Status_RUNNING
		}
		return task.Status_STOPPED
	}
	return task.Status_UNKNOWN
}

// Wait answers once the process's exit is told, with its status and time.
func (s *Service) Wait(ctx context.Context, r *api.WaitRequest) (*api.WaitResponse, error) {
	c, err := s.lookup(r.ID)
	if err != nil {
		return nil, err
	}
	exit, err := c.awaitExit(ctx, c.state(), r.ExecID)
	if err != nil {
		return nil, err
	}
	return &api.WaitResponse{ExitStatus: exit.Status, ExitedAt: timestamppb.New(exit.At)}, nil
}

// awaitExit returns the exit of a process that v has, once it may be told. It
// goes from view to view: the last one may have the process no longer.
func (c *container) awaitExit(ctx context.Context, v *view, exec string) (*lifecycle.Exit, error) {
	start := uint64(0) // the start that is under way
	for {
		exit, err := c.exitOf(v, exec, requestOf(ctx))
		if exit != nil || err != nil {
			return exit, err
		}
		if exec != "" && v.failed(start) {
			return nil, errorf(errdefs.ErrFailedPrecondition, "container %s: %s: its start has failed, it has no exit to wait for", c.id, processName(exec))
		}
		if opened, ok := v.Opened(lifecycle.OpStart, exec); ok {
			start = opened.Seq
		}
		select {
		case <-v.changed:
			v = v.next
		case <-c.stopped:
			if c.state() == v {
				return nil, errorf(errdefs.ErrNotFound, "container %s: the task is deleted", c.id)
			}
		case <-ctx.Done():
			return nil, errorf(errdefs.ErrUnavailable, "container %s: wait: %v", c.id, ctx.Err())
		}
	}
}

// failed reports whether an intent has just failed. One that is undone is
// repeated, and so has not.
func (v *view) failed(intent uint64) bool {
	for _, r := range v.Answers {
		if r.Intent == intent && r.Phase == lifecycle.Failed {
			return intent != 0
		}
	}
	return false
}

// exitOf returns the exit of a process if it may be told. A replayed Wait can
// come after the exec was deleted: then the journaled answer to that Delete
// has the exit.
func (c *container) exitOf(v *view, exec string, req request) (*lifecycle.Exit, error) {
	p, ok := v.process(exec)
	if ok {
		if p.Exit == nil || exec == "" && !v.InitExitTold() {
			return nil, nil
		}
		return p.Exit, nil
	}
	if req.replay {
		for _, r := range v.Answers {
			if r.Op != lifecycle.OpDelete || r.Exec != exec {
				continue
			}
			answer, err := decodeParams[deleteAnswer](r.Answer)
			if err != nil || !answer.At.IsZero() { // one that was never started has no exit, and 0 would be invented
				return &lifecycle.Exit{Status: answer.Status, At: answer.At}, err
			}
		}
	}
	return nil, errorf(errdefs.ErrNotFound, "container %s: %s: not found", c.id, processName(exec))
}

// Pids lists the processes in the container's cgroup. A created task answers
// with its init, and so does a stopped one that nobody has deleted: containerd
// takes an empty answer for a leaked task and removes it (containerd 1.7 and
// later, loading its shims).
func (s *Service) Pids(_ context.Context, r *api.PidsRequest) (*api.PidsResponse, error) {
	c, err := s.living(r.ID)
	if err != nil {
		return nil, err
	}
	v := c.state()
	pids := c.processes()
	if len(pids) == 0 {
		pids = []int{v.Init.Process.Pid} // 0 where it is still to be restored
	}
	execs := map[int]string{}
	for id, p := range v.Execs {
		if p.State == lifecycle.Running {
			execs[p.Process.Pid] = id
		}
	}
	resp := &api.PidsResponse{}
	for _, pid := range pids {
		info := &task.ProcessInfo{Pid: uint32(pid)}
		if id, ok := execs[pid]; ok {
			if info.Info, err = typeurl.MarshalAnyToProto(&options.ProcessDetails{ExecID: id}); err != nil {
				return nil, err
			}
		}
		resp.Processes = append(resp.Processes, info)
	}
	return resp, nil
}

// processes are those in the container's cgroup.
func (c *container) processes() []int {
	if c.state().Init.Process.Pid == 0 {
		return nil
	}
	cgroup, err := c.cgroup()
	var pids []int
	if err == nil {
		pids, err = cgroup.Processes()
	}
	if err != nil && !errdefs.IsNotFound(err) {
		c.svc.warn(c.id, "read the cgroup's processes", err)
	}
	return pids
}

// Connect tells who serves a task. It succeeds for ids nobody knows, with pid
// 0: containerd calls it before the first Create.
func (s *Service) Connect(_ context.Context, r *api.ConnectRequest) (*api.ConnectResponse, error) {
	resp := &api.ConnectResponse{ShimPid: uint32(s.KeeperPID), Version: s.Version}
	if c, err := s.lookup(r.ID); err == nil {
		resp.TaskPid = uint32(c.state().Init.Process.Pid)
	}
	return resp, nil
}
