package task

import (
	"context"
	"errors"
	"sync"
	"time"

	"perdure/internal/crash"
	"perdure/store"
)

const (
	forwardTimeout = 5 * time.Second // containerd's own limit for one event
	retryFirst     = 20 * time.Millisecond
	retryLast      = 2 * time.Second
)

// outbox sends one container's events in the journal's order, each until
// containerd has acknowledged it. A row leaves the journal after that; a
// worker killed between the two sends it again, unchanged.
type outbox struct {
	svc       *Service
	namespace string
	id        string
	journal   *store.Journal
	kicked    chan struct{}
	cancel    context.CancelFunc
	done      chan struct{}

	mu       sync.Mutex
	progress chan struct{} // closed and replaced when rows have left
}

func newOutbox(s *Service, namespace, id string, journal *store.Journal) *outbox {
	ctx, cancel := context.WithCancel(context.Background())
	o := &outbox{
		svc: s, namespace: namespace, id: id, journal: journal,
		kicked: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}), progress: make(chan struct{}),
	}
	o.kick()
	go o.run(ctx)
	return o
}

// kick says that there are rows, or that containerd may be back.
func (o *outbox) kick() {
	select {
	case o.kicked <- struct{}{}:
	default:
	}
}

// stop ends the sending; it returns when nothing uses the journal any more.
func (o *outbox) stop() {
	o.cancel()
	<-o.done
}

func (o *outbox) run(ctx context.Context) {
	defer close(o.done)
	wait := retryFirst
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.kicked:
		case <-retry:
		}
		if err := o.send(ctx); err != nil {
			retry = time.After(wait)
			wait = min(2*wait, retryLast)
			continue
		}
		retry, wait = nil, retryFirst
	}
}

// send publishes rows until none is left or one fails.
func (o *outbox) send(ctx context.Context) error {
	for {
		rows, err := o.journal.Outbox()
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if err := o.forward(ctx, row); err != nil {
				return err
			}
			err := crash.Fail("publish", "", crash.BeforeAck)
			if err == nil {
				err = o.journal.Acknowledge(row.Seq)
			}
			if err != nil {
				o.svc.warn(o.id, "an event that has arrived stays in the outbox", err)
				return err
			}
			crash.Here("publish", "", crash.AfterAck)
		}
		o.mu.Lock()
		close(o.progress)
		o.progress = make(chan struct{})
		o.mu.Unlock()
	}
}

func (o *outbox) forward(ctx context.Context, row store.Row) error {
	if err := crash.Fail("publish", "", crash.BeforeEffect); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	return o.svc.Publisher.Publish(ctx, o.namespace, row.Event)
}

// drained waits until no row is left.
func (o *outbox) drained(ctx context.Context) error {
	for {
		o.mu.Lock()
		progress := o.progress
		o.mu.Unlock()
		rows, err := o.journal.Outbox()
		if err != nil || len(rows) == 0 {
			return err
		}
		select {
		case <-progress:
		case <-o.done:
			return errors.New("nothing is sent any more: the worker leaves")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
