package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/recovery/keeper/protocol"
	"perdure/store/lifecycle"
)

func TestIDs(t *testing.T) {
	for id, good := range map[string]bool{
		"a": true, "web-1": true, "a.b_c-d": true, strings.Repeat("x", 64): true,
		"": false, "../x": false, "a/b": false, ".hidden": false, "a..b": false, "a b": false, "a\n": false,
		strings.Repeat("x", identifierMax+1): false,
	} {
		err := checkID("container id", id)
		if (err == nil) != good {
			t.Errorf("%q: %v, want good: %v", id, err, good)
		}
		if err != nil && !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v is not InvalidArgument", id, err)
		}
	}
}

// TestKeeperMarksWin: a client cannot forge the keeper's marks.
func TestKeeperMarksWin(t *testing.T) {
	md := ttrpc.MD{}
	md.Append(protocol.KeyRequest, "7") // the client's own
	md.Append(protocol.KeyRequest, "1234")
	md.Append(protocol.KeyReplay, "1")
	md.Append(protocol.KeyOldest, "1200")
	got := requestOf(ttrpc.WithMetadata(context.Background(), md))
	if want := (request{number: 1234, replay: true, oldest: 1200}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := requestOf(context.Background()); got != (request{}) {
		t.Errorf("without a keeper: %+v", got)
	}
}

// TestJournaledErrors: an error comes out of the journal as it went in.
func TestJournaledErrors(t *testing.T) {
	for _, class := range []error{
		errdefs.ErrNotFound, errdefs.ErrAlreadyExists, errdefs.ErrFailedPrecondition, errdefs.ErrInvalidArgument,
		errdefs.ErrNotImplemented, errdefs.ErrUnavailable, errdefs.ErrUnknown,
	} {
		before := fmt.Errorf("container c: start: %w", errorf(class, "because of %v", class))
		after := answeredError(journaledError(before))
		if !errors.Is(after, class) {
			t.Errorf("%v: came back as another class: %v", class, after)
		}
		a, b := errgrpc.ToGRPC(before).Error(), errgrpc.ToGRPC(after).Error()
		if a != b {
			t.Errorf("the client sees %q first and %q in the replay", a, b)
		}
	}
}

func TestRefusals(t *testing.T) {
	for reason, class := range map[lifecycle.Reason]error{
		lifecycle.NotFound: errdefs.ErrNotFound, lifecycle.Exists: errdefs.ErrAlreadyExists, lifecycle.Precondition: errdefs.ErrFailedPrecondition,
	} {
		err := refusal("web", "", &lifecycle.IllegalError{Kind: lifecycle.Init, State: lifecycle.Stopped, Op: lifecycle.OpStart, Reason: reason})
		if !errors.Is(err, class) || !strings.Contains(err.Error(), "container web") {
			t.Errorf("%v: %v", reason, err)
		}
	}
	if refusal("web", "", nil) != nil {
		t.Error("no error is no refusal")
	}
}

// Package options tests what is read; here it is whose fault a mistake is.
func TestOptions(t *testing.T) {
	value, err := proto.Marshal(&options.Options{BinaryName: "crun"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := optionsOf(&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: value})
	if want := (runtimeOptions{Binary: "crun"}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := optionsOf(&anypb.Any{TypeUrl: "example.com/what.Ever"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("an unknown type: %v, want it to be the caller's fault", err)
	}
}
