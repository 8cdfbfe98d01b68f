package task

import (
	"context"
	"fmt"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/internal/crash"
	"perdure/runtime"
	"perdure/store/lifecycle"
)

const (
	killSignal  = int(unix.SIGKILL)
	lastSignal  = 64          // SIGRTMAX of the kernel, signal(7)
	runcTimeout = time.Minute // one runc call; a hook may take its time
)

// execParams are journaled with an exec: all that Start, in whatever worker,
// needs.
type execParams struct {
	Stdio runtime.Stdio `json:"stdio"`
	Spec  []byte        `json:"spec"` // the OCI process, JSON as the client sent it
}

// Exec adds a process to a container; Start runs it.
func (s *Service) Exec(ctx context.Context, r *api.ExecProcessRequest) (*emptypb.Empty, error) {
	if err := checkID("exec id", r.ExecID); err != nil {
		return nil, fmt.Errorf("container %s: %w", r.ID, err)
	}
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	spec, err := runtime.CheckProcess(r.Spec.GetValue())
	if err != nil {
		return nil, errorf(errdefs.ErrInvalidArgument, "container %s: exec %s: %v", r.ID, r.ExecID, err)
	}
	params := execParams{
		Stdio: runtime.Stdio{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
		Spec:  spec,
	}
	return &emptypb.Empty{}, c.run(ctx, command{op: lifecycle.OpExec, exec: r.ExecID, params: params}, nil)
}

// Start lets a created init run, or runs an added exec.
func (s *Service) Start(ctx context.Context, r *api.StartRequest) (*api.StartResponse, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	cmd := command{op: lifecycle.OpStart, exec: r.ExecID, effect: c.startInit, dated: true}
	switch {
	case r.ExecID != "":
		cmd.effect = c.startExec
	case c.restores():
		cmd.effect = c.restore
	}
	var answer pidAnswer
	if err := c.run(ctx, cmd, &answer); err != nil {
		return nil, err
	}
	return &api.StartResponse{Pid: answer.Pid}, nil
}

func (c *container) startInit(ctx context.Context, intent lifecycle.Record) (int, error) {
	if err := c.launched(intent); err != nil {
		return 0, err
	}
	return 0, c.runc.Start(ctx, intent.IntentName())
}

func (c *container) startExec(ctx context.Context, intent lifecycle.Record) (int, error) {
	p, ok := c.state().process(intent.Exec)
	if !ok {
		return 0, errorf(errdefs.ErrNotFound, "container %s: exec %s: not found", c.id, intent.Exec)
	}
	params, err := decodeParams[execParams](p.Params)
	if err != nil {
		return 0, fmt.Errorf("container %s: exec %s: %w", c.id, intent.Exec, err)
	}
	io, err := c.openIO(ctx, intent.Exec, params.Stdio, intent)
	if err != nil {
		return 0, err
	}
	pid, err := c.runc.Exec(ctx, intent.IntentName(), params.Spec, io, func() error { return c.launched(intent) })
	if err != nil {
		return 0, err
	}
	crash.Here(string(lifecycle.OpStart), intent.Exec, crash.AfterRuntime)
	return pid, io.Started()
}

type killParams struct {
	Signal uint32 `json:"signal"`
	All    bool   `json:"all,omitempty"`
}

// Kill signals a process. It is done at least once: a worker that dies after
// the signal and before the outcome sends it again when the call is replayed.
func (s *Service) Kill(ctx context.Context, r *api.KillRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if r.Signal > lastSignal {
		return nil, errorf(errdefs.ErrInvalidArgument, "container %s: %s: kill: there is no signal %d", c.id, processName(r.ExecID), r.Signal)
	}
	params := killParams{Signal: r.Signal, All: r.All}
	cmd := command{op: lifecycle.OpKill, exec: r.ExecID, params: params, effect: func(ctx context.Context, intent lifecycle.Record) (int, error) {
		return 0, c.kill(ctx, intent, params)
	}}
	return &emptypb.Empty{}, c.run(ctx, cmd, nil)
}

func (c *container) kill(ctx context.Context, intent lifecycle.Record, params killParams) error {
	switch {
	case intent.Exec != "":
		p, _ := c.state().process(intent.Exec)
		if err := c.svc.Machine.SignalProcess(p.Process.Pid, p.Process.Start, unix.Signal(params.Signal)); err != nil {
			return fmt.Errorf("container %s: exec %s: %w", c.id, intent.Exec, err)
		}
		return nil
	case params.All:
		return c.thawedFor(params.Signal, c.runc.KillAll(ctx, intent.IntentName(), int(params.Signal)))
	default:
		err := c.thawedFor(params.Signal, c.runc.Kill(ctx, intent.IntentName(), int(params.Signal)))
		crash.Here(string(lifecycle.OpKill), "", crash.AfterRuntime)
		if err == nil && int(params.Signal) == killSignal {
			c.killLeft()
		}
		return err
	}
}

// killLeft ends, before a SIGKILL of the init is answered, what would be ended at its
// exit (see sweep): no worker has to live just then. What it does not get done, that
// does.
func (c *container) killLeft() {
	if c.params.PrivatePIDNamespace {
		return
	}
	if err := c.killCgroup(); err != nil {
		c.svc.warn(c.id, "kill what the init process leaves behind", err)
	}
}

// thawedFor lets a frozen container die: cgroup v1 keeps frozen processes that
// were killed, and not every runtime thaws them.
func (c *container) thawedFor(signal uint32, err error) error {
	if err == nil && int(signal) == killSignal && c.state().Init.State == lifecycle.Paused {
		c.thaw()
	}
	return err
}

// ResizePty sets a terminal's size. It has no outcome worth a record: a size
// set twice is the same size.
func (s *Service) ResizePty(ctx context.Context, r *api.ResizePtyRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if _, ok := c.state().process(r.ExecID); !ok {
		return nil, errorf(errdefs.ErrNotFound, "container %s: %s: not found", r.ID, processName(r.ExecID))
	}
	io := c.streams.get(r.ExecID)
	if io == nil {
		return nil, errorf(errdefs.ErrFailedPrecondition, "container %s: %s: resize: it has no terminal, before its start and after its end", r.ID, processName(r.ExecID))
	}
	if err := io.Resize(uint16(r.Width), uint16(r.Height)); err != nil {
		return nil, fmt.Errorf("container %s: %s: resize: %w", r.ID, processName(r.ExecID), err)
	}
	return &emptypb.Empty{}, nil
}

// CloseIO ends a process's stdin once what was written to it is handed over.
func (s *Service) CloseIO(ctx context.Context, r *api.CloseIORequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if !r.Stdin {
		return &emptypb.Empty{}, nil
	}
	if err := c.run(ctx, command{op: lifecycle.OpCloseIO, exec: r.ExecID}, nil); err != nil {
		return nil, err
	}
	err = c.closeStdin(r.ExecID)
	crash.Here(string(lifecycle.OpCloseIO), r.ExecID, crash.AfterEffect)
	return &emptypb.Empty{}, err
}

// closeStdin carries out a journaled CloseIO. Whoever brings a process up does
// so too, once its streams are known: the two may cross. It can be repeated.
func (c *container) closeStdin(exec string) error {
	p, _ := c.state().process(exec)
	io := c.streams.get(exec)
	if io == nil || !p.StdinClosed {
		return nil
	}
	if err := io.CloseStdin(); err != nil {
		return fmt.Errorf("container %s: %s: %w", c.id, processName(exec), err)
	}
	return nil
}

func processName(exec string) string {
	if exec == "" {
		return "init process"
	}
	return "exec " + exec
}
