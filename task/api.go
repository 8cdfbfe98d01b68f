package task

import (
	"context"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The two services are the same messages under two package names, so one table
// of methods serves both (containerd/api, runtime/task/v2 and v3).
var serviceNames = []string{"containerd.task.v2.Task", "containerd.task.v3.Task"}

// Register adds the Task services to a ttrpc server.
func (s *Service) Register(server *ttrpc.Server) {
	for _, name := range serviceNames {
		server.RegisterService(name, &ttrpc.ServiceDesc{Methods: s.methods()})
	}
}

// methods are described in docs/task-api.md.
func (s *Service) methods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"State":      busy(s, s.State),
		"Create":     busy(s, s.Create),
		"Start":      busy(s, s.Start),
		"Delete":     busy(s, s.Delete),
		"Pids":       busy(s, s.Pids),
		"Kill":       busy(s, s.Kill),
		"Exec":       busy(s, s.Exec),
		"ResizePty":  busy(s, s.ResizePty),
		"CloseIO":    busy(s, s.CloseIO),
		"Wait":       method(s.Wait),
		"Connect":    busy(s, s.Connect),
		"Shutdown":   busy(s, s.Shutdown),
		"Pause":      busy(s, s.Pause),
		"Resume":     busy(s, s.Resume),
		"Checkpoint": busy(s, s.Checkpoint),
		"Update":     busy(s, s.Update),
		"Stats":      busy(s, s.Stats),
	}
}

// method adapts a typed handler to ttrpc; errors leave as gRPC status.
func method[Req, Resp any](handle func(context.Context, *Req) (*Resp, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := new(Req)
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		resp, err := handle(ctx, req)
		if err == nil {
			err = fits(resp)
		}
		if err != nil {
			return nil, bounded(errgrpc.ToGRPC(err))
		}
		return resp, nil
	}
}

const (
	answerMax = 4<<20 - 4<<10 // bytes that ttrpc takes of an answer (messageLengthMax), with room for its envelope
	textHead  = 8 << 10       // bytes of an error's text that are sent from its start ...
	textTail  = 8 << 10       // ... and from its end, where the cause is
)

// fits refuses an answer that is too large for a frame: the ttrpc server would
// drop the connection over it, and the next worker's after the replay.
func fits(resp any) error {
	if m, ok := resp.(proto.Message); ok && proto.Size(m) > answerMax {
		return errorf(errdefs.ErrResourceExhausted, "the answer has %d bytes, of which ttrpc takes %d", proto.Size(m), answerMax)
	}
	return nil
}

// bounded shortens an error that repeats what it was given.
func bounded(err error) error {
	st := status.Convert(err)
	text := st.Message()
	if len(text) <= textHead+textTail {
		return err
	}
	return status.Error(st.Code(), strings.ToValidUTF8(text[:textHead]+" ... "+text[len(text)-textTail:], ""))
}

// busy is method for a call that keeps the worker up. Wait does not: it is
// answered by whichever worker sees the exit.
func busy[Req, Resp any](s *Service, handle func(context.Context, *Req) (*Resp, error)) ttrpc.Method {
	return method(func(ctx context.Context, req *Req) (*Resp, error) {
		s.idle.begin()
		defer s.idle.end()
		if s.closed() {
			return nil, errLeaving
		}
		return handle(ctx, req)
	})
}
