package task

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// TestAnswersHaveALimit: ttrpc gives the connection up over a message that is too large, and so would each worker
// that the request is replayed to.
func TestAnswersHaveALimit(t *testing.T) {
	if err := fits(&anypb.Any{Value: make([]byte, answerMax+1)}); !errdefs.IsResourceExhausted(err) {
		t.Errorf("an answer that is too large: %v", err)
	}
	if err := fits(&anypb.Any{Value: make([]byte, answerMax/2)}); err != nil {
		t.Errorf("an answer that fits: %v", err)
	}
}

func TestErrorsHaveALimit(t *testing.T) {
	long := errorf(errdefs.ErrInvalidArgument, "exec id %q: too long, because of the end", strings.Repeat("\x01", 1<<20))
	st := status.Convert(bounded(errgrpc.ToGRPC(long)))
	if st.Code() != codes.InvalidArgument || len(st.Message()) > textHead+textTail+10 {
		t.Errorf("%d bytes of %v", len(st.Message()), st.Code())
	}
	for _, part := range []string{"exec id", "because of the end"} {
		if !strings.Contains(st.Message(), part) {
			t.Errorf("%q is not in what is left of it", part)
		}
	}
	short := errgrpc.ToGRPC(errorf(errdefs.ErrNotFound, "no such thing"))
	if bounded(short) != short {
		t.Error("a short error was changed")
	}
}

func TestPathsMeanTheSameEverywhere(t *testing.T) {
	for path, ok := range map[string]bool{"": true, "/a/b": true, "a": false, "./a": false, "/a\x00b": false} {
		if err := checkPath("image", path); (err == nil) != ok || !ok && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
