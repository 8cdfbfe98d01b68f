package task

import (
	"context"
	"fmt"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/runtime"
	"perdure/store/lifecycle"
)

// Pause freezes a running container. State says "pausing" while it goes on, and
// an exec that is started meanwhile waits for its end.
func (s *Service) Pause(ctx context.Context, r *api.PauseRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, c.run(ctx, command{
		op: lifecycle.OpPause, dated: true,
		effect: func(ctx context.Context, intent lifecycle.Record) (int, error) {
			return 0, c.runc.Pause(ctx, intent.IntentName())
		},
	}, nil)
}

// Resume thaws a paused container.
func (s *Service) Resume(ctx context.Context, r *api.ResumeRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, c.run(ctx, command{
		op: lifecycle.OpResume, dated: true,
		effect: func(ctx context.Context, intent lifecycle.Record) (int, error) {
			return 0, c.runc.Resume(ctx, intent.IntentName())
		},
	}, nil)
}

// thaw takes back a pause that did not succeed, and lets a frozen container end.
func (c *container) thaw() {
	cgroup, err := c.cgroup()
	if err == nil {
		err = cgroup.Thaw()
	}
	if err != nil && !errdefs.IsNotFound(err) {
		c.svc.warn(c.id, "thaw the cgroup", err)
	}
}

// cgroup is the container's, as it was journaled when its init came up.
func (c *container) cgroup() (Cgroup, error) {
	init := c.state().Init
	if init.Cgroup == "" { // none was to be read then
		return c.svc.Machine.CgroupOf(init.Process.Pid, init.Process.Start)
	}
	return c.svc.Machine.ParseCgroup(init.Cgroup)
}

// updateParams are journaled with an update.
type updateParams struct {
	Resources []byte `json:"resources"` // the OCI LinuxResources, JSON as the client sent it
}

// Update changes the limits of a container's cgroup. Annotations have no meaning
// to the runtime, as with the stock shim.
func (s *Service) Update(ctx context.Context, r *api.UpdateTaskRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	resources, err := runtime.ParseResources(r.Resources.GetValue())
	if err != nil {
		return nil, errorf(errdefs.ErrInvalidArgument, "container %s: update: %v", r.ID, err)
	}
	return &emptypb.Empty{}, c.run(ctx, command{
		op: lifecycle.OpUpdate, params: updateParams{r.Resources.GetValue()}, dated: true,
		effect: func(ctx context.Context, intent lifecycle.Record) (int, error) {
			return 0, c.runc.Update(ctx, intent.IntentName(), resources)
		},
	}, nil)
}

// Stats reads the container's cgroup: the Metrics message of the cgroup version
// that the host has.
func (s *Service) Stats(_ context.Context, r *api.StatsRequest) (*api.StatsResponse, error) {
	c, err := s.living(r.ID)
	if err != nil {
		return nil, err
	}
	cgroup, err := c.cgroup()
	if err != nil {
		return nil, fmt.Errorf("container %s: stats: %w", c.id, err)
	}
	metrics, err := cgroup.Stats()
	if err != nil {
		return nil, fmt.Errorf("container %s: stats: %w", c.id, err)
	}
	stats, err := typeurl.MarshalAnyToProto(metrics)
	if err != nil {
		return nil, fmt.Errorf("container %s: stats: %w", c.id, err)
	}
	return &api.StatsResponse{Stats: stats}, nil
}
