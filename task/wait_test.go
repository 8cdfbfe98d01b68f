package task

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"perdure/store"
	"perdure/store/lifecycle"
)

// silent takes every event.
type silent struct{}

func (silent) Publish(context.Context, string, store.Event) error { return nil }

// TestWaitMissesNoExit: a Wait that gets the processor late, after its exec was
// deleted already, tells its exit all the same.
func TestWaitMissesNoExit(t *testing.T) {
	bundle := t.TempDir()
	journal, err := store.Create(bundle, store.Meta{Namespace: "ns", ID: "web", Bundle: bundle})
	if err != nil {
		t.Fatalf("%s: %v", filepath.Join(bundle, store.Name), err)
	}
	s := New(Config{Publisher: silent{}, Machine: NewMachine(), Now: time.Now})
	c := newContainer(s, journal, createParams{})
	defer c.close()
	commit := func(records ...lifecycle.Record) uint64 {
		t.Helper()
		var last uint64
		var err error
		c.do(func() {
			var written []lifecycle.Record
			if written, err = c.commit(nil, records...); err == nil {
				last = written[len(written)-1].Seq
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	do := func(op lifecycle.Op, exec string, p *lifecycle.Process) {
		t.Helper()
		intent := commit(lifecycle.Record{Op: op, Exec: exec, Phase: lifecycle.Intent})
		commit(lifecycle.Record{Op: op, Exec: exec, Phase: lifecycle.Done, Intent: intent, Process: p})
	}
	do(lifecycle.OpCreate, "", &lifecycle.Process{Pid: 10, Start: 1})
	do(lifecycle.OpStart, "", nil)
	commit(lifecycle.Record{Op: lifecycle.OpExec, Exec: "e", Phase: lifecycle.Done})
	do(lifecycle.OpStart, "e", &lifecycle.Process{Pid: 11, Start: 2})

	late := c.state()
	c.do(func() { err = c.commitExit("e", lifecycle.Exit{Status: 7, At: s.Now(), Source: lifecycle.Reaped}) })
	if err != nil {
		t.Fatal(err)
	}
	do(lifecycle.OpDelete, "e", nil)
	exit, err := c.awaitExit(context.Background(), late, "e")
	if err != nil || exit.Status != 7 {
		t.Errorf("got %+v, %v; want status 7", exit, err)
	}
}

// TestWaitInventsNoExit: a replayed Wait for an exec that was deleted without ever having been started finds nothing. It
// was answered with status 0 at no time.
func TestWaitInventsNoExit(t *testing.T) {
	deleted := lifecycle.Record{Op: lifecycle.OpDelete, Exec: "e", Phase: lifecycle.Done, Answer: []byte(`{"pid":0,"status":0,"at":"0001-01-01T00:00:00Z"}`)}
	v := &view{Container: &lifecycle.Container{Answers: map[uint64]lifecycle.Record{5: deleted}}}
	c := &container{id: "web"}
	exit, err := c.exitOf(v, "e", request{number: 3, replay: true})
	if exit != nil || !errdefs.IsNotFound(err) {
		t.Errorf("got %+v, %v; want NotFound", exit, err)
	}
}

// TestAReplayIsToldHowItsOwnEffectEnds: what it has begun may be in the world while the journal cannot be written, so it
// is not refused as another command is.
func TestAReplayIsToldHowItsOwnEffectEnds(t *testing.T) {
	bundle := t.TempDir()
	journal, err := store.Create(bundle, store.Meta{Namespace: "ns", ID: "web", Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	c := newContainer(New(Config{Publisher: silent{}, Machine: NewMachine(), Now: time.Now}), journal, createParams{})
	defer c.close()
	commit := func(r lifecycle.Record) (written lifecycle.Record) {
		t.Helper()
		c.do(func() {
			var all []lifecycle.Record
			if all, err = c.commit(nil, r); err == nil {
				written = all[0]
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return written
	}
	intent := commit(lifecycle.Record{Op: lifecycle.OpCreate, Phase: lifecycle.Intent, Request: 5})
	c.troubles.note(intent.Seq, errors.New("the disk is full"))
	create := command{op: lifecycle.OpCreate}
	if _, err := c.begin(t.Context(), request{number: 6}, create); !errdefs.IsUnavailable(err) {
		t.Errorf("another create: %v, want Unavailable", err)
	}
	answered := make(chan lifecycle.Record)
	go func() {
		r, err := c.begin(context.Background(), request{number: 5, replay: true}, create)
		if err != nil {
			t.Errorf("its own replay: %v", err)
		}
		answered <- r
	}()
	select {
	case r := <-answered:
		t.Errorf("answered with %+v before it was settled", r)
	default:
	}
	commit(lifecycle.Record{Op: lifecycle.OpCreate, Phase: lifecycle.Done, Intent: intent.Seq, Request: 5, Process: &lifecycle.Process{Pid: 10, Start: 1}})
	if r := <-answered; r.Phase != lifecycle.Done {
		t.Errorf("answered with %+v, want that it is done", r)
	}
}
