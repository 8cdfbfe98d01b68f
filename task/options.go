package task

import (
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/task/options"
)

// runtimeOptions are the caller's choices, as they are journaled.
type runtimeOptions = options.Options

func optionsOf(given *anypb.Any) (runtimeOptions, error) {
	o, err := options.Read(given)
	if err != nil {
		err = errorf(errdefs.ErrInvalidArgument, "%v", err)
	}
	return o, err
}

// checkLog refuses a container whose log options the worker cannot follow,
// before anything is done for it.
func (s *Service) checkLog(id string, o runtimeOptions) error {
	if s.Log == nil {
		return nil
	}
	if err := s.Log.Check(o); err != nil {
		return errorf(errdefs.ErrInvalidArgument, "container %s: %v", id, err)
	}
	return nil
}

// followLog has the worker's log follow the options of a container that it now
// has; leaveLog ends that.
func (c *container) followLog() {
	if c.svc.Log != nil {
		c.svc.Log.Follow(c.key(), c.params.Options)
	}
}

func (c *container) leaveLog() {
	if c.svc.Log != nil {
		c.svc.Log.Leave(c.key())
	}
}
