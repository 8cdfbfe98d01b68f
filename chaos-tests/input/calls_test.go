package input

import (
	"context"
	"net"
	"strings"
	"testing"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/chaos-tests/harness"
)

// Calls on the shim's socket that containerd itself would not let through.
func TestBadCalls(t *testing.T) {
	s := newSubject(t)
	unknown := &anypb.Any{TypeUrl: "example.com/what.Ever", Value: []byte("x")}
	damaged := &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{0xff, 0xff}}
	bundle := s.h.Bundle(s.h.Namespace, "subject")
	for _, test := range []struct {
		name, method string
		req          proto.Message
		is           func(error) bool
		words        []string
	}{
		{"create in a bundle without config.json", "Create", &api.CreateTaskRequest{ID: "new", Bundle: empty(t)}, isClear, []string{"new", "config.json"}},
		{"create in no bundle", "Create", &api.CreateTaskRequest{ID: "new", Bundle: "/no/such/bundle"}, isClear, []string{"new", "/no/such/bundle"}},
		{"create in a relative bundle", "Create", &api.CreateTaskRequest{ID: "new", Bundle: "bundle"}, isClear, []string{"new", "bundle"}},
		{"create without a bundle", "Create", &api.CreateTaskRequest{ID: "new"}, isClear, []string{"new", "bundle"}},
		{"create of a separator", "Create", &api.CreateTaskRequest{ID: "a/b", Bundle: bundle}, errdefs.IsInvalidArgument, []string{`"a/b"`}},
		{"create of the parent", "Create", &api.CreateTaskRequest{ID: "..", Bundle: bundle}, errdefs.IsInvalidArgument, []string{`".."`}},
		{"create of nothing", "Create", &api.CreateTaskRequest{Bundle: bundle}, errdefs.IsInvalidArgument, nil},
		{"create with unknown options", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: unknown}, errdefs.IsInvalidArgument, []string{"new", "what.Ever"}},
		{"create with damaged options", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: damaged}, errdefs.IsInvalidArgument, []string{"new", "options"}},
		{"create of what is there", "Create", &api.CreateTaskRequest{ID: "subject", Bundle: bundle}, errdefs.IsAlreadyExists, []string{"subject"}},
		{"exec of a separator", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: "../x"}, errdefs.IsInvalidArgument, []string{`"../x"`}},
		{"exec of nothing", "Exec", &api.ExecProcessRequest{ID: "subject"}, errdefs.IsInvalidArgument, nil},
		{"exec of no process", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: "e"}, isClear, []string{"subject", "e"}},
		{"exec of an unknown type", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: "e", Spec: unknown}, isClear, []string{"subject", "e"}},
		{"state of a separator", "State", &api.StateRequest{ID: "../subject"}, errdefs.IsNotFound, []string{"../subject"}},
		{"start of an unknown exec", "Start", &api.StartRequest{ID: "subject", ExecID: "none"}, errdefs.IsNotFound, []string{"none"}},
		{"kill in an unknown container", "Kill", &api.KillRequest{ID: "none", Signal: 9}, errdefs.IsNotFound, []string{"none"}},
		{"kill with no signal of Linux", "Kill", &api.KillRequest{ID: "subject", Signal: 1000}, errdefs.IsInvalidArgument, []string{"subject", "1000"}},
	} {
		s.try(t, test.name, func(ctx context.Context, t *testing.T) {
			names(t, s.call(ctx, t, test.method, test.req), test.is, test.words...)
		})
	}
}

// isClear: the caller's fault, whatever class it is.
func isClear(err error) bool {
	return errdefs.IsInvalidArgument(err) || errdefs.IsFailedPrecondition(err) || errdefs.IsNotFound(err)
}

// call makes one call on the shim's socket.
func (s *subject) call(ctx context.Context, t *testing.T, method string, req proto.Message) error {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	harness.Check(t, err)
	c := ttrpc.NewClient(conn)
	defer c.Close()
	return errgrpc.ToNative(c.Call(ctx, taskService, method, req, &emptypb.Empty{}))
}

// What gets as far as containerd's client, which passes some of it on.
func TestBadInputThroughContainerd(t *testing.T) {
	s := newSubject(t)
	s.try(t, "container id with a separator", func(ctx context.Context, t *testing.T) {
		_, err := s.h.Run(ctx, "a/b", harness.Config{})
		names(t, err, errdefs.IsInvalidArgument, "a/b")
	})
	s.try(t, "exec id with a separator", func(ctx context.Context, t *testing.T) {
		process, err := typeurl.MarshalAnyToProto(&specs.Process{Args: harness.Shell("exit 0"), Cwd: "/"})
		harness.Check(t, err)
		_, err = s.h.Client().TaskService().Exec(ctx, &tasks.ExecProcessRequest{ContainerID: "subject", ExecID: "a/b", Spec: process})
		names(t, errgrpc.ToNative(err), errdefs.IsInvalidArgument, "a/b")
	})
	s.try(t, "options of another type", func(ctx context.Context, t *testing.T) {
		c, err := s.h.Run(ctx, "options", harness.Config{Options: &emptypb.Empty{}})
		if err == nil || !strings.Contains(err.Error(), "Empty") {
			t.Errorf("the error is %v, want the type's name in it", err)
		}
		harness.Check(t, c.Remove(ctx))
	})
	s.try(t, "a program that is not there", func(ctx context.Context, t *testing.T) {
		c, err := s.h.Run(ctx, "absent", harness.Config{Args: []string{"/no/such/program"}})
		if err == nil || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("the error is %v, want the program's name in it", err)
		}
		harness.Check(t, c.Remove(ctx))
	})
}
