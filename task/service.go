package task

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"perdure/store"
	"perdure/store/lifecycle"
)

// Config is what a worker knows of its surroundings.
type Config struct {
	Keeper    Keeper
	Publisher Publisher
	Settle    Settle
	Machine   Machine
	Log       Log // nil: containers have no say
	Now       func() time.Time

	KeeperPID      int
	Namespace      string
	Group          string
	Address        string // the keeper's socket
	GRPCAddress    string
	TTRPCAddress   string
	Version        string
	BootID         string
	ShutdownWanted bool
	Idle           time.Duration // without work for so long a worker may leave; 0: never
}

// Service serves the tasks of one group: usually one container, or a pod.
type Service struct {
	Config
	exits   *exits
	idle    idle
	resting chan struct{}
	failed  chan error

	lastAnswers lastAnswers

	mu         sync.Mutex
	containers map[string]*container   // by container id; creating ones included
	creating   map[string]struct{}     // ids between the answer "not there" and their entry above
	executing  map[uint64]*container   // commands under way, by request number
	departed   map[*container]struct{} // deleted, with events still to be sent
	broken     map[string]error        // ids whose journal cannot be used, and why
	wanted     bool                    // Shutdown was asked for while tasks existed
	over       bool                    // Close was called
}

// New makes a service without containers.
func New(c Config) *Service {
	s := &Service{
		Config:     c,
		containers: map[string]*container{},
		creating:   map[string]struct{}{},
		executing:  map[uint64]*container{},
		departed:   map[*container]struct{}{},
		broken:     map[string]error{},
	}
	s.resting = make(chan struct{})
	s.idle.never = make(chan struct{})
	s.failed = make(chan error, 1)
	s.exits = newExits(c.Keeper)
	s.idle.after, s.idle.check = c.Idle, s.rest
	return s
}

// lookup finds a container for a read: it is there as soon as its journal is
// open, before recovery is through with it.
func (s *Service) lookup(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	if why := s.broken[id]; why != nil {
		return nil, errorf(errdefs.ErrUnavailable, "container %s: %v", id, why)
	}
	return nil, errorf(errdefs.ErrNotFound, "container %s: no such task in this shim", id)
}

// living finds a container that is not deleted, for a read.
func (s *Service) living(id string) (*container, error) {
	c, err := s.lookup(id)
	if err == nil && c.state().Init.State == lifecycle.Deleted {
		err = errorf(errdefs.ErrNotFound, "container %s: the task is deleted", id)
	}
	return c, err
}

// settled finds a container for a command: recovery has finished with it. It
// does not wait for one that is in trouble, but for that of its own request.
func (s *Service) settled(ctx context.Context, id string) (*container, error) {
	c, err := s.lookup(id)
	if err != nil {
		return nil, err
	}
	for {
		news := c.troubles.heard()
		select {
		case <-c.adopted:
			return s.lookup(id) // an undone create is gone by now
		default:
		}
		if create, ok := c.state().Opened(lifecycle.OpCreate, ""); ok {
			// The create itself is told how it ends: a client that takes it for failed would leave the task behind.
			own := create.Request != 0 && create.Request == requestOf(ctx).number
			if why := c.troubles.of(create.Seq); why != nil && !own {
				return nil, errorf(errdefs.ErrUnavailable, "container %s: not re-adopted yet, it is tried again: %v", id, why)
			}
		}
		select {
		case <-c.adopted:
		case <-news:
		case <-ctx.Done():
			return nil, errorf(errdefs.ErrUnavailable, "container %s: still being re-adopted: %v", id, ctx.Err())
		}
	}
}

// reserve claims an id for a create, or answers why it cannot.
func (s *Service) reserve(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return errLeaving
	}
	_, busy := s.creating[id]
	if s.containers[id] != nil || busy {
		return errorf(errdefs.ErrAlreadyExists, "container %s: the task exists already", id)
	}
	s.creating[id] = struct{}{}
	s.lastAnswers.forget(id)
	return nil
}

func (s *Service) unreserve(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.creating, id)
}

func (s *Service) enter(c *container) {
	s.mu.Lock()
	s.containers[c.id] = c
	over := s.over
	s.mu.Unlock()
	if over {
		c.leave()
	}
}

// remove takes a container out.
func (s *Service) remove(c *container) {
	s.mu.Lock()
	if s.containers[c.id] == c {
		delete(s.containers, c.id)
	}
	delete(s.departed, c)
	s.mu.Unlock()
	s.exits.forget(c)
}

// departing moves a deleted container out of the way of a new one of its id; it
// keeps the keeper up.
func (s *Service) departing(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.departed[c] = struct{}{}
	if s.containers[c.id] == c {
		delete(s.containers, c.id)
	}
}

// empty tells whether no task exists, is being created or has events unsent.
func (s *Service) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.containers)+len(s.creating)+len(s.departed)+len(s.broken) == 0
}

// Broken enters a container whose journal cannot be used: calls for it say why,
// and no exit is taken for nobody's, because it may be one of its.
func (s *Service) Broken(id string, why error) {
	s.mu.Lock()
	s.broken[id] = why
	s.mu.Unlock()
	s.exits.opened()
}

// Failed tells why this worker cannot go on. Its owner ends it: what is half
// done is the next worker's to settle.
func (s *Service) Failed() <-chan error { return s.failed }

func (s *Service) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// track notes which container executes a request, for the keeper's pings.
func (s *Service) track(number uint64, c *container) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.executing[number] = c
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.executing, number)
	}
}

// Ping answers the keeper's question whether the worker still works, through
// the actor that has the request, so that a deadlock there is found.
func (s *Service) Ping(number uint64, pong func()) {
	s.mu.Lock()
	c := s.executing[number]
	s.mu.Unlock()
	go func() {
		if c == nil || !c.do(pong) {
			pong()
		}
	}()
}

// Kick has every publisher try again at once: containerd has connected.
func (s *Service) Kick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		c.outbox.kick()
	}
	for c := range s.departed {
		c.outbox.kick()
	}
}

func (s *Service) meta(id, instance, bundle string) store.Meta {
	return store.Meta{
		BootID: s.BootID, Namespace: s.Namespace, ID: id, Instance: instance, Group: s.Group,
		Address: s.Address, GRPCAddress: s.GRPCAddress, TTRPCAddress: s.TTRPCAddress,
		Bundle: bundle, Writer: s.Version, Created: s.Now(),
	}
}

func (s *Service) warn(id, what string, err error) {
	log.L.WithError(err).WithField("container", id).Warn(what)
}
