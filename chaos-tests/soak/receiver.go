package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/containerd/containerd/api/events"
	events "github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"perdure/chaos-tests/checker"
)

// receiver stands where shims take containerd to be: it passes their events on to containerd, notes those that it has
// taken, and can be as bad as a receiver can be. What containerd has taken and not passed on to those who subscribed
// dies with it; so nobody who subscribes can be asked which events have arrived.
type receiver struct {
	clock  *clock
	path   string
	server *ttrpc.Server

	mu       sync.Mutex
	mood     mood
	upstream *ttrpc.Client
	of       map[string]*inbox // by container
	total    int
	twice    int
	bad      func(error) // told of what must not be; it must not ask the receiver
}

// mood is what becomes of events.
type mood string

const (
	takes   mood = "takes"   // passed on
	refuses mood = "refuses" // not passed on, and said so
	hangs   mood = "hangs"   // not passed on, and not answered
	forgets mood = "forgets" // passed on, and said that not
)

// inbox is what has arrived for one id.
type inbox struct {
	events []checker.Event // that nobody has taken yet; Target.Life is filled in by who takes them
	// What is known of lives that are over: nothing is told of them any more but, once more, the delete.
	deletes map[int]string  // its payload, by pid of the init
	over    map[string]bool // how the ids of their execs begin
}

// listen starts a receiver on a socket at path.
func listen(path string, c *clock, bad func(error)) (*receiver, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r := &receiver{clock: c, path: path, server: server, mood: takes, of: map[string]*inbox{}, bad: bad}
	events.RegisterTTRPCEventsService(server, r)
	go server.Serve(context.Background(), l) //nolint:errcheck // until close
	return r, nil
}

func (r *receiver) close() error { return errors.Join(r.connect(""), r.server.Close()) }

// stand takes the place of containerd's socket at path, for as long as this containerd lives.
func (r *receiver) stand(path string) error {
	real := path + ".real"
	if err := os.Rename(path, real); err != nil {
		return err
	}
	if err := os.Symlink(r.path, path); err != nil {
		return err
	}
	return r.connect(real)
}

// connect passes events on to path from now on, or to nobody.
func (r *receiver) connect(path string) error {
	var next *ttrpc.Client
	if path != "" {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		next = ttrpc.NewClient(conn)
	}
	r.mu.Lock()
	last := r.upstream
	r.upstream = next
	r.mu.Unlock()
	if last != nil {
		return last.Close()
	}
	return nil
}

func (r *receiver) feel(m mood) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mood = m
}

// Forward is the call that shims make.
func (r *receiver) Forward(ctx context.Context, req *events.ForwardRequest) (*emptypb.Empty, error) {
	r.mu.Lock()
	m, upstream := r.mood, r.upstream
	r.mu.Unlock()
	switch {
	case upstream == nil:
		return nil, status.Error(codes.Unavailable, "containerd is down")
	case m == refuses:
		return nil, status.Error(codes.Unavailable, "refused by the soak")
	case m == hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if _, err := events.NewTTRPCEventsClient(upstream).Forward(ctx, req); err != nil {
		return nil, status.Errorf(codes.Unavailable, "containerd: %v", err)
	}
	r.take(req)
	if m == forgets {
		return nil, status.Error(codes.Unavailable, "taken, and the answer lost by the soak")
	}
	return &emptypb.Empty{}, nil
}

func (r *receiver) take(req *events.ForwardRequest) {
	e, err := read(req)
	if err != nil {
		r.bad(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = r.clock.tick()
	r.total++
	box := r.box(e.Container)
	again := func(o checker.Event) bool { return o.Raw == e.Raw && o.Time.Equal(e.Time) }
	if slices.ContainsFunc(box.events, again) {
		r.twice++
	}
	if e.Name == "create" {
		delete(box.deletes, e.Pid) // the number is another process's by now
	}
	last, over := box.deletes[e.Pid]
	over = over && e.Exec == "" || box.over[lifeOf(e.Exec)]
	switch {
	case !over:
		box.events = append(box.events, e)
	case e.Name == "delete" && e.Exec == "" && e.Raw == last:
		r.twice++
	default:
		r.bad(fmt.Errorf("after the task's delete: %s", e))
	}
}

// lifeOf is how the ids of all execs of a life begin; "" for the init.
func lifeOf(exec string) string {
	life, _, _ := strings.Cut(exec, "-")
	return life
}

func (r *receiver) box(id string) *inbox {
	if r.of[id] == nil {
		r.of[id] = &inbox{deletes: map[int]string{}, over: map[string]bool{}}
	}
	return r.of[id]
}

// look returns the events of a container for which mine says true.
func (r *receiver) look(id string, mine func(checker.Event) bool) []checker.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []checker.Event
	for _, e := range r.box(id).events {
		if mine(e) {
			found = append(found, e)
		}
	}
	return found
}

// forget takes the events of a life that is over, which are judged, out of the box.
func (r *receiver) forget(id string, n int, mine func(checker.Event) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	box := r.box(id)
	var rest []checker.Event
	for _, e := range box.events {
		switch {
		case !mine(e):
			rest = append(rest, e)
		case e.Name == "delete" && e.Exec == "":
			box.deletes[e.Pid] = e.Raw
		}
	}
	box.events = rest
	box.over[lifePrefix(n)] = true
}

// read makes an Event out of ttrpc's form.
func read(req *events.ForwardRequest) (checker.Event, error) {
	payload := req.Envelope.Event
	decoded, err := typeurl.UnmarshalAny(payload)
	if err != nil {
		return checker.Event{}, fmt.Errorf("event %s: %w", req.Envelope.Topic, err)
	}
	e := checker.Event{
		Name: strings.TrimPrefix(req.Envelope.Topic, "/tasks/"),
		Time: req.Envelope.Timestamp.AsTime(),
		Raw:  req.Envelope.Topic + payload.GetTypeUrl() + string(payload.GetValue()),
	}
	ended := func(pid, code uint32, at time.Time) { e.Pid, e.Status, e.ExitedAt = int(pid), code, at }
	switch v := decoded.(type) {
	case *api.TaskCreate:
		e.Container, e.Pid = v.ContainerID, int(v.Pid)
	case *api.TaskStart:
		e.Container, e.Pid = v.ContainerID, int(v.Pid)
	case *api.TaskExecAdded:
		e.Container, e.Exec = v.ContainerID, v.ExecID
	case *api.TaskExecStarted:
		e.Container, e.Exec, e.Pid = v.ContainerID, v.ExecID, int(v.Pid)
	case *api.TaskExit:
		e.Container, e.Exec = v.ContainerID, v.ID
		ended(v.Pid, v.ExitStatus, v.ExitedAt.AsTime())
	case *api.TaskDelete:
		e.Container, e.Exec = v.ContainerID, v.ID
		ended(v.Pid, v.ExitStatus, v.ExitedAt.AsTime())
	case *api.TaskPaused:
		e.Container = v.ContainerID
	case *api.TaskResumed:
		e.Container = v.ContainerID
	case *api.TaskOOM:
		e.Container = v.ContainerID
	default:
		return e, fmt.Errorf("event %s: unexpected type %T", req.Envelope.Topic, v)
	}
	if e.Exec == e.Container {
		e.Exec = "" // the init's events carry the container's own id, or none
	}
	return e, nil
}
