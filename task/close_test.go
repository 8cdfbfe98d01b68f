package task

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"perdure/store"
	"perdure/store/lifecycle"
)

// TestNothingIsDecidedAfterClose: what a worker that hands over was about to do is the next one's, and the journal
// is free for it.
func TestNothingIsDecidedAfterClose(t *testing.T) {
	bundle := t.TempDir()
	journal, err := store.Create(bundle, store.Meta{Namespace: "ns", ID: "web", Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Publisher: silent{}, Machine: NewMachine(), Now: time.Now})
	c := newContainer(s, journal, createParams{})
	s.enter(c)
	s.Close()
	s.Close()
	again, err := store.Open(bundle+"/"+store.Name, 0)
	if err != nil {
		t.Fatalf("the journal is not free: %v", err)
	}
	defer again.Close()
	_, err = c.decide(context.Background(), request{}, command{op: lifecycle.OpCreate})
	if !errdefs.IsUnavailable(err) {
		t.Errorf("decided after Close: %v", err)
	}
	if err := s.reserve("other"); !errdefs.IsUnavailable(err) {
		t.Errorf("a container was begun after Close: %v", err)
	}
	if done, err := c.exited(arrival{}); done || err != nil {
		t.Errorf("an exit would be acknowledged after Close: %v, %v", done, err)
	}
}
