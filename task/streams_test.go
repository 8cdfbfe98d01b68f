package task

import (
	"context"
	"testing"
	"time"

	"perdure/store"
	"perdure/store/lifecycle"
)

// stdio is that of a process, and knows whether it was let go.
type stdio struct {
	IO
	closed bool
}

func (s *stdio) Close() error { s.closed = true; return nil }

// TestFailedStartKeepsItsStreamsUntilItIsJournaled: a next worker may find the start undone, and begins it again for a
// client that has not seen the end of its fifos.
func TestFailedStartKeepsItsStreamsUntilItIsJournaled(t *testing.T) {
	bundle := t.TempDir()
	journal, err := store.Create(bundle, store.Meta{Namespace: "ns", ID: "web", Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	c := newContainer(New(Config{Publisher: silent{}, Machine: NewMachine(), Now: time.Now}), journal, createParams{})
	defer c.close()
	begun := func(records ...lifecycle.Record) (last lifecycle.Record) {
		t.Helper()
		var err error
		c.do(func() {
			for _, r := range records {
				var written []lifecycle.Record
				if written, err = c.commit(nil, r); err != nil {
					return
				}
				last = written[0]
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	create := begun(lifecycle.Record{Op: lifecycle.OpCreate, Phase: lifecycle.Intent})
	begun(lifecycle.Record{Op: lifecycle.OpCreate, Phase: lifecycle.Done, Intent: create.Seq, Process: &lifecycle.Process{Pid: 10, Start: 1}})
	start := begun(lifecycle.Record{Op: lifecycle.OpStart, Phase: lifecycle.Intent})
	intent := begun(
		lifecycle.Record{Op: lifecycle.OpStart, Phase: lifecycle.Done, Intent: start.Seq},
		lifecycle.Record{Op: lifecycle.OpExec, Exec: "e", Phase: lifecycle.Done},
		lifecycle.Record{Op: lifecycle.OpStart, Exec: "e", Phase: lifecycle.Intent},
	)
	io := &stdio{}
	c.streams.put("e", io)
	outcome := c.failed(t.Context(), lifecycle.Record{Op: lifecycle.OpStart, Exec: "e", Intent: intent.Seq}, context.DeadlineExceeded)
	refused := outcome
	refused.Intent = intent.Seq + 100 // a journal that does not take it
	if _, err := c.concludeCommand(t.Context(), refused); err == nil || io.closed {
		t.Fatalf("not journaled: %v, streams closed: %v", err, io.closed)
	}
	if _, err := c.concludeCommand(t.Context(), outcome); err != nil || !io.closed {
		t.Errorf("journaled: %v, streams closed: %v", err, io.closed)
	}
}
