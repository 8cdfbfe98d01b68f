package task

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/store/lifecycle"
)

// errorf makes an error of one of errdefs' classes with a text of its own.
func errorf(class error, format string, args ...any) error {
	return &classified{class: class, text: fmt.Sprintf(format, args...)}
}

// classified prints its text alone; errors.Is finds its class.
type classified struct {
	class error
	text  string
}

func (e *classified) Error() string { return e.text }
func (e *classified) Unwrap() error { return e.class }

// refusal maps the lifecycle's one error type to errdefs' classes, naming the
// container and the process.
func refusal(id, exec string, err error) error {
	if err == nil {
		return nil
	}
	var illegal *lifecycle.IllegalError
	if !errors.As(err, &illegal) {
		return fmt.Errorf("container %s: %w", id, err)
	}
	var class error = errdefs.ErrFailedPrecondition
	switch illegal.Reason {
	case lifecycle.NotFound:
		class = errdefs.ErrNotFound
	case lifecycle.Exists:
		class = errdefs.ErrAlreadyExists
	}
	return errorf(class, "container %s: %s: %v", id, processName(exec), illegal)
}

// journaledError is an error as the journal keeps it: the gRPC code's name and
// the text, so that a replayed request gets the same answer.
func journaledError(err error) *lifecycle.Error {
	st := status.Convert(errgrpc.ToGRPC(err))
	return &lifecycle.Error{Code: st.Code().String(), Message: st.Message()}
}

// answeredError is the inverse of journaledError.
func answeredError(e *lifecycle.Error) error {
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if code.String() == e.Code {
			return errgrpc.ToNative(status.Error(code, e.Message))
		}
	}
	return errorf(errdefs.ErrUnknown, "%s", e.Message)
}
