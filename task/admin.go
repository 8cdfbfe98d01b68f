package task

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"perdure/store/lifecycle"
)

// The private service on the shim's socket, for perdure's own commands. Its
// messages are the Task API's, so that no other protocol has to be kept.
const (
	AdminService = "perdure.admin.v1.Admin"
	AdminEnd     = "End"     // DeleteRequest -> DeleteResponse: kill, wait, delete
	AdminJournal = "Journal" // StateRequest -> Any with the JSON of store.Contents, zipped: it repeats itself, and an answer has a limit
)

// RegisterAdmin adds the private service to a ttrpc server.
func (s *Service) RegisterAdmin(server *ttrpc.Server) {
	server.RegisterService(AdminService, &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		AdminEnd:     busy(s, s.End),
		AdminJournal: busy(s, s.Journal),
	}})
}

// End kills a container whatever it is doing, waits for it and deletes it.
// `delete` calls it while the keeper lives: containerd runs `delete` also while
// a create it has given up is still under way.
func (s *Service) End(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResponse, error) {
	c, err := s.lookup(r.ID)
	if err != nil {
		return nil, err
	}
	if err := c.endCreate(ctx); err != nil {
		return nil, err
	}
	_, err = s.Kill(ctx, &api.KillRequest{ID: r.ID, Signal: uint32(killSignal), All: true})
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	if c.state().Init.Process.Pid != 0 { // none came to be of one that was to be restored
		if _, err := s.Wait(ctx, &api.WaitRequest{ID: r.ID}); err != nil {
			return nil, err
		}
	}
	return s.Delete(ctx, &api.DeleteRequest{ID: r.ID})
}

// endCreate stops a create, or restore, that is under way and waits for its end.
func (c *container) endCreate(ctx context.Context) error {
	c.ending.Do(func() { close(c.giveUp) })
	for {
		v := c.state()
		_, creating := v.Opened(lifecycle.OpCreate, "")
		if _, bringing := v.Opened(c.initOp(), ""); !creating && !bringing {
			return nil
		}
		select {
		case <-v.changed:
		case <-c.stopped:
			return nil
		case <-ctx.Done():
			return errorf(errdefs.ErrUnavailable, "container %s: its create does not end: %v", c.id, ctx.Err())
		}
	}
}

// Journal gives a reader what the journal's lock keeps from it.
func (s *Service) Journal(_ context.Context, r *api.StateRequest) (*anypb.Any, error) {
	c, err := s.lookup(r.ID)
	if err != nil {
		return nil, err
	}
	contents, err := c.journal.Contents()
	if err != nil {
		return nil, fmt.Errorf("container %s: read journal: %w", r.ID, err)
	}
	var value bytes.Buffer
	zip := gzip.NewWriter(&value)
	err = errors.Join(json.NewEncoder(zip).Encode(contents), zip.Close())
	return &anypb.Any{TypeUrl: "perdure/store.Contents", Value: value.Bytes()}, err
}
