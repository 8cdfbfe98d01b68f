package store

import (
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

// newJournal creates a journal whose state is checked against its file when the test ends.
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

func TestCommitAndReopen(t *testing.T) {
	j := createJournal(t)
	do(t, j, lifecycle.OpCreate, "", &lifecycle.Process{Pid: 10, Start: 1})
	do(t, j, lifecycle.OpStart, "", nil)
	path := j.file.Name()
	_ = path
	if j.State().Init.State != lifecycle.Running {
		t.Fatalf("%+v", j.State())
	}
}
