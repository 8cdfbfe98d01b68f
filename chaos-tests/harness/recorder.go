package harness

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/events"

	"perdure/chaos-tests/wait"
)

// Recorder keeps the task events of one namespace in the order in which they
// arrived, over restarts of containerd. An event that arrives again unchanged
// is kept once: containerd's contract allows that.
type Recorder struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu         sync.Mutex
	all        []Event
	seen       map[string]bool // payload and time
	duplicates int
	failures   []error
	probed     string // name in the probe that came last
}

func newRecorder() *Recorder {
	r := &Recorder{seen: map[string]bool{}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *Recorder) close() { r.cancel() }

// probe is the topic of events that only tell that a subscription works.
const probe = "/perdure-test/probe"

// subscribe records what the daemon behind c passes on from now on. It returns
// when the subscription is known to work.
func (r *Recorder) subscribe(ctx context.Context, c *client.Client, namespace string) error {
	messages, errs := c.Subscribe(r.ctx, "namespace=="+namespace)
	go func() {
		for {
			select {
			case m := <-messages:
				r.take(m)
			case <-errs: // the daemon was stopped, or the test is over
				return
			}
		}
	}()
	return r.Flush(ctx, c)
}

// Flush waits until everything that containerd has taken so far is recorded: what it has acknowledged to a shim and not
// passed on yet is lost when it is killed.
func (r *Recorder) Flush(ctx context.Context, c *client.Client) error {
	attempt := 0
	return wait.Until(ctx, startLimit, "an event subscription", func() error {
		attempt++
		name := fmt.Sprintf("%d-%p-%d", attempt, c, time.Now().UnixNano())
		if err := c.EventService().Publish(ctx, probe, &api.NamespaceCreate{Name: name}); err != nil {
			return err
		}
		return wait.Until(ctx, 20*time.Millisecond, "the probe", func() error { return r.sawProbe(name) })
	})
}

const startLimit = 20 * time.Second

func (r *Recorder) sawProbe(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probed != name {
		return fmt.Errorf("probe %s has not arrived", name)
	}
	return nil
}

func (r *Recorder) take(m *events.Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Topic == probe {
		var p api.NamespaceCreate
		if err := unmarshal(m.Event, &p); err == nil {
			r.probed = p.Name
		}
		return
	}
	if !strings.HasPrefix(m.Topic, "/tasks/") {
		return
	}
	e, err := decode(m)
	if err != nil {
		r.failures = append(r.failures, err)
		return
	}
	key := e.payload + e.Time.String()
	if r.seen[key] {
		r.duplicates++
		return
	}
	r.seen[key] = true
	r.all = append(r.all, e)
}

// Of returns the events of one container so far, and an error if there was one
// that could not be read.
func (r *Recorder) Of(container string) ([]Event, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) > 0 {
		return nil, r.failures[0]
	}
	return slices.DeleteFunc(slices.Clone(r.all), func(e Event) bool { return e.Container != container }), nil
}

// Duplicates returns how many events came again, unchanged.
func (r *Recorder) Duplicates() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.duplicates
}

// Await waits for the event called name ("exit e1", "delete") of a container.
func (r *Recorder) Await(limit time.Duration, container, name string) (Event, error) {
	var found Event
	what := fmt.Sprintf("event %q of %s", name, container)
	err := wait.Until(r.ctx, limit, what, func() error {
		all, err := r.Of(container)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(e Event) bool { return e.String() == name })
		if i < 0 {
			return fmt.Errorf("there are %v", names(all))
		}
		found = all[i]
		return nil
	})
	return found, err
}

// Expect waits until the events of a container are those named, in that order
// and no others.
func (r *Recorder) Expect(limit time.Duration, container string, want ...string) ([]Event, error) {
	var all []Event
	err := wait.Until(r.ctx, limit, fmt.Sprintf("events %v of %s", want, container), func() (err error) {
		if all, err = r.Of(container); err != nil {
			return err
		}
		if got := names(all); !slices.Equal(got, want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
	return all, err
}

func names(all []Event) []string {
	out := make([]string, len(all))
	for i, e := range all {
		out[i] = e.String()
	}
	return out
}

// Check waits until the events of a container fit its life (see CheckEvents).
func (r *Recorder) Check(limit time.Duration, life Life) error {
	return wait.Until(r.ctx, limit, "the events of a life", func() error {
		all, err := r.Of(life.Container)
		if err != nil {
			return err
		}
		return CheckEvents(all, life)
	})
}
