package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/runtime"
	"perdure/store/lifecycle"
)

// Checkpoint writes an image of a container with CRIU; with the option Exit the
// container ends then, and its exit is told as any other.
func (s *Service) Checkpoint(ctx context.Context, r *api.CheckpointTaskRequest) (*emptypb.Empty, error) {
	c, err := s.settled(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	params, err := checkpointOf(r, c.params.Options)
	if err != nil {
		return nil, fmt.Errorf("container %s: checkpoint: %w", r.ID, err)
	}
	return &emptypb.Empty{}, c.run(ctx, command{
		op: lifecycle.OpCheckpoint, params: params, dated: true,
		effect: func(ctx context.Context, intent lifecycle.Record) (int, error) {
			return 0, c.runc.Checkpoint(ctx, intent.IntentName(), params)
		},
	}, nil)
}

// checkpointOf reads the request's options: none, or
// containerd.runc.v1.CheckpointOptions. The container's own say where the image
// and CRIU's logs go if the request does not.
func checkpointOf(r *api.CheckpointTaskRequest, own runtimeOptions) (runtime.CheckpointOptions, error) {
	o, err := checkpointOptions(r.Options)
	if err != nil {
		return runtime.CheckpointOptions{}, err
	}
	params := runtime.CheckpointOptions{
		ImagePath: cmp.Or(r.Path, o.ImagePath, own.CriuImagePath),
		WorkPath:  cmp.Or(o.WorkPath, own.CriuWorkPath),
	}
	if params.ImagePath == "" {
		return params, errorf(errdefs.ErrInvalidArgument, "the request has no path for the image")
	}
	if err := errors.Join(checkPath("checkpoint image", params.ImagePath), checkPath("CRIU's work directory", params.WorkPath)); err != nil {
		return params, err
	}
	switch o.CgroupsMode {
	case "", "soft", "full", "strict":
	default:
		return params, errorf(errdefs.ErrInvalidArgument, "cgroups mode %q: must be soft, full or strict", o.CgroupsMode)
	}
	params.ParentPath, params.CgroupsMode = o.ParentPath, o.CgroupsMode
	params.Exit, params.OpenTCP, params.ExternalUnixSockets = o.Exit, o.OpenTcp, o.ExternalUnixSockets
	params.Terminal, params.FileLocks, params.EmptyNamespaces = o.Terminal, o.FileLocks, o.EmptyNamespaces
	return params, nil
}

// checkPath refuses a path that means another in the worker, whose working
// directory is /, than in the runtime, whose is the bundle. None is none.
func checkPath(what, path string) error {
	if path != "" && !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return errorf(errdefs.ErrInvalidArgument, "%s %q: must be an absolute path", what, path)
	}
	return nil
}

func checkpointOptions(any *anypb.Any) (*options.CheckpointOptions, error) {
	o := &options.CheckpointOptions{}
	switch {
	case any == nil || any.TypeUrl == "":
		return o, nil
	case any.MessageName() != o.ProtoReflect().Descriptor().FullName():
		return nil, errorf(errdefs.ErrInvalidArgument, "options of unknown type %q: want containerd.runc.v1.CheckpointOptions", any.TypeUrl)
	}
	if err := proto.Unmarshal(any.Value, o); err != nil {
		return nil, errorf(errdefs.ErrInvalidArgument, "decode options %s: %v", any.TypeUrl, err)
	}
	return o, nil
}

// checkpointPath is where the dump that an outcome belongs to was written.
func (c *container) checkpointPath(outcome lifecycle.Record) string {
	params, err := decodeParams[runtime.CheckpointOptions](c.state().Open[outcome.Intent].Params)
	if err != nil {
		c.svc.warn(c.id, "read the journaled checkpoint", err)
	}
	return params.ImagePath
}

// restore is the effect of the Start of a container that comes from a
// checkpoint: what Create and Start do for any other.
func (c *container) restore(ctx context.Context, intent lifecycle.Record) (int, error) {
	ctx, cancel := c.untilGivenUp(ctx)
	defer cancel()
	io, err := c.openIO(ctx, "", c.params.Stdio, intent)
	if err != nil {
		return 0, err
	}
	pid, err := c.runc.Restore(ctx, intent.IntentName(), *c.params.Image, io, func() error { return c.launched(intent) })
	if err != nil {
		return 0, err
	}
	return pid, io.Started()
}
