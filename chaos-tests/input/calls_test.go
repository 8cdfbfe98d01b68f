package input

import (
	"context"
	"net"
	"strings"
	"testing"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
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
	misspelt := &anypb.Any{TypeUrl: "runtimeoptions.v1.Options", Value: encoded(t, "\nrooot = '/'")}
	unlogged := &anypb.Any{TypeUrl: "runtimeoptions.v1.Options", Value: encoded(t, "log_path = '/no/such/directory/log'")}
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
		{"create of two lines", "Create", &api.CreateTaskRequest{ID: "a\nb", Bundle: bundle}, errdefs.IsInvalidArgument, []string{`"a\nb"`}},
		{"create of an id that is too long", "Create", &api.CreateTaskRequest{ID: strings.Repeat("x", 77), Bundle: bundle}, errdefs.IsInvalidArgument, []string{"at most 76"}},
		{"create with an unknown key", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: misspelt}, errdefs.IsInvalidArgument, []string{"new", "line 2", "rooot"}},
		{"create with an unusable log", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: unlogged}, errdefs.IsInvalidArgument, []string{"new", "/no/such/directory/log"}},
		{"create of nothing", "Create", &api.CreateTaskRequest{Bundle: bundle}, errdefs.IsInvalidArgument, nil},
		{"create with unknown options", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: unknown}, errdefs.IsInvalidArgument, []string{"new", "what.Ever"}},
		{"create with damaged options", "Create", &api.CreateTaskRequest{ID: "new", Bundle: bundle, Options: damaged}, errdefs.IsInvalidArgument, []string{"new", "options"}},
		{"create of what is there", "Create", &api.CreateTaskRequest{ID: "subject", Bundle: bundle}, errdefs.IsAlreadyExists, []string{"subject"}},
		{"exec of a separator", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: "../x"}, errdefs.IsInvalidArgument, []string{`"../x"`}},
		{"exec of an id that is too long", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: strings.Repeat("x", 77)}, errdefs.IsInvalidArgument, []string{"subject", "at most 76"}},
		{"exec of two lines", "Exec", &api.ExecProcessRequest{ID: "subject", ExecID: "a\n"}, errdefs.IsInvalidArgument, []string{"subject", `"a\n"`}},
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

// encoded are options with a document, as a message.
func encoded(t *testing.T, document string) []byte {
	t.Helper()
	b, err := proto.Marshal(&runtimeoptions.Options{ConfigBody: []byte(document)})
	harness.Check(t, err)
	return b
}

// The longest ids that there may be leave room for every path made of them: a
// console's socket, a fifo, the files of an intent.
func TestLongestIDs(t *testing.T) {
	longest := strings.Repeat("x", 76)
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, longest, harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	e, err := c.Exec(ctx, harness.ExecConfig{ID: longest, Args: harness.Shell("tty; exit 9"), Terminal: true})
	harness.Check(t, err)
	if r, err := e.Finish(ctx); err != nil || r.Code != 9 || !strings.Contains(r.Stdout, "/dev/pts/") {
		t.Errorf("an exec ended with %d, %v and said %q", r.Code, err, r.Stdout)
	}
	harness.Check(t, c.Remove(ctx))
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
