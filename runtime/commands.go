package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	runc "github.com/containerd/go-runc"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Start runs the user's process of a created container.
func (r *Runc) Start(ctx context.Context, intent string) error {
	return r.run(ctx, intent, "start", func(ctx context.Context, c *runc.Runc) error {
		return c.Start(ctx, r.ID)
	})
}

// Kill signals the container's init; errdefs.ErrNotFound when it has ended.
func (r *Runc) Kill(ctx context.Context, intent string, signal int) error {
	return r.kill(ctx, intent, signal, false)
}

// KillAll signals every process in the container's cgroup; errdefs.ErrNotFound when
// the container is unknown or has no process left.
func (r *Runc) KillAll(ctx context.Context, intent string, signal int) error {
	return r.kill(ctx, intent, signal, true)
}

func (r *Runc) kill(ctx context.Context, intent string, signal int, all bool) error {
	return r.run(ctx, intent, "kill", func(ctx context.Context, c *runc.Runc) error {
		return c.Kill(ctx, r.ID, signal, &runc.KillOpts{All: all})
	})
}

// Delete removes what the runtime keeps of a stopped container, with force of any
// container, which it kills first. A container the runtime does not know is no error;
// what one that was killed while creating it has left is removed then.
func (r *Runc) Delete(ctx context.Context, intent string, force bool) error {
	known := r.known()
	err := r.run(ctx, intent, "delete", func(ctx context.Context, c *runc.Runc) error {
		return c.Delete(ctx, r.ID, &runc.DeleteOpts{Force: force})
	})
	if errdefs.IsNotFound(err) {
		err = nil
	}
	if err == nil && !known {
		if left := r.RemoveCgroup(ctx); left != nil {
			log.G(ctx).WithError(left).WithField("container", r.ID).Warn("a cgroup is left behind")
		}
	}
	return err
}

// Features describes what the runtime binary can do, for -info. runc has it from 1.1,
// crun from 1.8.6.
func (r *Runc) Features(ctx context.Context) ([]byte, error) {
	f, err := r.client("").Features(ctx)
	if err != nil {
		return nil, fmt.Errorf("features of %s: %w", r.Binary, err)
	}
	return json.Marshal(f)
}

// Pause freezes the container's processes; errdefs.ErrFailedPrecondition where it is
// not running.
func (r *Runc) Pause(ctx context.Context, intent string) error {
	return r.run(ctx, intent, "pause", func(ctx context.Context, c *runc.Runc) error {
		return c.Pause(ctx, r.ID)
	})
}

// Resume thaws a paused container.
func (r *Runc) Resume(ctx context.Context, intent string) error {
	return r.run(ctx, intent, "resume", func(ctx context.Context, c *runc.Runc) error {
		return c.Resume(ctx, r.ID)
	})
}

// Update changes the limits of the container's cgroup; what resources leaves out stays
// as it is. It can be repeated.
func (r *Runc) Update(ctx context.Context, intent string, resources *specs.LinuxResources) error {
	return r.run(ctx, intent, "update", func(ctx context.Context, c *runc.Runc) error {
		return c.Update(ctx, r.ID, resources)
	})
}

// ParseResources reads the LinuxResources document of an update, or says what is wrong
// with it.
func ParseResources(document []byte) (*specs.LinuxResources, error) {
	resources := &specs.LinuxResources{}
	if len(document) == 0 {
		return nil, errors.New("the request has no resources")
	}
	if err := json.Unmarshal(document, resources); err != nil {
		return nil, fmt.Errorf("the resources are not an OCI LinuxResources document: %w", err)
	}
	return resources, nil
}
