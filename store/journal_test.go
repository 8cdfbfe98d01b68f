package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/store/lifecycle"
)

var clock = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func testMeta() Meta {
	return Meta{
		BootID: "b00t", Namespace: "k8s.io", ID: "web", Instance: "i1", Group: "pod", Address: "unix:///run/containerd/s/abc",
		Bundle: "/run/containerd/io.containerd.runtime.v2.task/k8s.io/web", Writer: "1.0.0", Created: clock,
	}
}

// createJournal makes a journal a journal whose state is checked against its file when the test ends.
func createJournal(t testing.TB) *Journal {
	t.Helper()
	j, err := Create(t.TempDir(), testMeta())
	if err != nil {
		t.Fatal(err)
	}
	checked(t, j)
	return j
}

func checked(t testing.TB, j *Journal) {
	t.Cleanup(func() {
		if j.db != nil && j.broken == nil {
			if err := j.Check(); err != nil {
				t.Errorf("check in clean-up: %v", err)
			}
		}
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

func commit(t testing.TB, j *Journal, records ...lifecycle.Record) []lifecycle.Record {
	t.Helper()
	out, _, err := j.Commit(records, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// do commits an intent and its outcome.
func do(t testing.TB, j *Journal, op lifecycle.Op, exec string, p *lifecycle.Process) {
	t.Helper()
	i := commit(t, j, lifecycle.Record{Op: op, Phase: lifecycle.Intent, Exec: exec, At: clock})
	commit(t, j, lifecycle.Record{Intent: i[0].Seq, Phase: lifecycle.Done, Process: p, At: clock})
}

// launch is a running container.
func launch(t testing.TB, j *Journal) {
	t.Helper()
	do(t, j, lifecycle.OpCreate, "", &lifecycle.Process{Pid: 10, Start: 1})
	do(t, j, lifecycle.OpStart, "", nil)
}

func reopen(t testing.TB, j *Journal) *Journal {
	t.Helper()
	path := j.path(t)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	k, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked(t, k)
	return k
}

// path is where the file is now; it was opened under a temporary name.
func (j *Journal) path(t testing.TB) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", j.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommitAndReopen(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	out := commit(t, j, lifecycle.Record{Op: lifecycle.OpExec, Exec: "a", Phase: lifecycle.Done, Params: json.RawMessage(`{"args":["sh"]}`)},
		lifecycle.Record{Op: lifecycle.OpKill, Phase: lifecycle.Intent, Request: 7})
	if out[0].Seq != 5 || out[1].Seq != 6 || out[1].From != lifecycle.Running {
		t.Errorf("%+v", out)
	}
	before := j.State()
	j = reopen(t, j)
	if !sameContainer(before, j.State()) {
		t.Errorf("before: %+v\nafter: %+v", before, j.State())
	}
	if j.Meta() != testMeta() {
		t.Errorf("%+v", j.Meta())
	}
	records, err := j.Records()
	if err != nil || len(records) != 6 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestRefusedCommitChangesNothing(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	before := j.State()
	_, _, err := j.Commit([]lifecycle.Record{
		{Op: lifecycle.OpPause, Phase: lifecycle.Intent},
		{Op: lifecycle.OpResume, Phase: lifecycle.Intent},
	}, []Event{{Topic: "/tasks/paused"}})
	var busy *lifecycle.BusyError
	if !errors.As(err, &busy) || !strings.Contains(err.Error(), "container web") {
		t.Errorf("%v; want a BusyError that names the container", err)
	}
	if j.State() != before {
		t.Error("the state in memory has changed")
	}
	if rows, err := j.Outbox(); err != nil || len(rows) != 0 {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestOutboxKeepsOrderAndBytes(t *testing.T) {
	j := createJournal(t)
	var want []Event
	for i := range 300 {
		e := Event{Topic: "/tasks/exec-started", At: clock.Add(time.Duration(i)), TypeURL: "containerd.events.TaskExecStarted", Value: []byte{0, byte(i), 0xff, 0xfe, '"'}}
		want = append(want, e)
		if _, _, err := j.Commit(nil, []Event{e}); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Acknowledge(1, 3, 999); err != nil {
		t.Fatal(err)
	}
	j = reopen(t, j)
	rows, err := j.Outbox()
	if err != nil || len(rows) != 298 || rows[0].Seq != 2 || rows[1].Seq != 4 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	var all []uint64
	for _, r := range rows {
		if !reflect.DeepEqual(r.Event, want[r.Seq-1]) {
			t.Errorf("row %d: %+v; want %+v", r.Seq, r.Event, want[r.Seq-1])
		}
		all = append(all, r.Seq)
	}
	if !slices.IsSorted(all) {
		t.Error("rows are out of order")
	}
	if err := j.Acknowledge(all...); err != nil {
		t.Fatal(err)
	}
	j = reopen(t, j)
	if _, _, err := j.Commit(nil, want[:1]); err != nil {
		t.Fatal(err)
	}
	if rows, err = j.Outbox(); err != nil || len(rows) != 1 || rows[0].Seq != 301 {
		t.Errorf("a number was used again: %+v, %v", rows, err)
	}
}

// TestConcurrentCommits adds 64 execs at once, while others read.
func TestConcurrentCommits(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	var writers sync.WaitGroup
	for i := range 64 {
		writers.Go(func() {
			id := fmt.Sprint("e", i)
			if _, _, err := j.Commit([]lifecycle.Record{{Op: lifecycle.OpExec, Exec: id, Phase: lifecycle.Done}}, []Event{{Topic: id}}); err != nil {
				t.Error(err)
			}
			if j.State().Process(id).State != lifecycle.Created {
				t.Errorf("%s is not there after its commit", id)
			}
			if _, err := j.Outbox(); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if n := len(j.State().Execs); n != 64 {
		t.Errorf("%d execs", n)
	}
}

func TestClosed(t *testing.T) {
	j := createJournal(t)
	for range 2 {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	_, _, commitErr := j.Commit(nil, nil)
	_, outboxErr := j.Outbox()
	_, fileErr := j.File()
	for _, err := range []error{commitErr, outboxErr, fileErr, j.Acknowledge(1), j.Check()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%v; want ErrClosed", err)
		}
	}
	if j.State() == nil {
		t.Error("the state cannot be read any more")
	}
}
