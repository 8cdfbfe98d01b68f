package store

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"perdure/store/lifecycle"
)

// execParams is what an exec request leaves in the journal: an OCI process with its environment, capabilities
// and stdio, about 1.5 KB.
var execParams = func() json.RawMessage {
	env := make([]string, 22)
	for i := range env {
		env[i] = fmt.Sprintf("KUBERNETES_SERVICE_VARIABLE_%d=tcp://10.96.0.%d:443", i, i)
	}
	data, err := json.Marshal(map[string]any{
		"process": map[string]any{"args": []string{"/bin/sh", "-c", "exec /healthz --port 8080"}, "env": env, "cwd": "/",
			"capabilities": map[string]any{"bounding": []string{"CAP_CHOWN", "CAP_NET_BIND_SERVICE"}}, "noNewPrivileges": true},
		"stdout": "/run/containerd/io.containerd.grpc.v1.cri/containers/web/io/exec-stdout",
	})
	if err != nil {
		panic(err)
	}
	return data
}()

// runExec is the whole life of an exec, seven records in five commits, and its events acknowledged.
func runExec(t testing.TB, j *Journal, id string, request uint64) {
	t.Helper()
	p := &lifecycle.Process{Pid: 4000, Start: request + 1}
	step := func(events []Event, r ...lifecycle.Record) uint64 {
		out, _, err := j.Commit(r, events)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Seq
	}
	event := []Event{{Topic: "/tasks/exec-started", At: clock, TypeURL: "containerd.events.TaskExecStarted", Value: make([]byte, 90)}}
	step(event, lifecycle.Record{Op: lifecycle.OpExec, Exec: id, Phase: lifecycle.Done, Request: request, Params: execParams, At: clock})
	i := step(nil, lifecycle.Record{Op: lifecycle.OpStart, Exec: id, Phase: lifecycle.Intent, Request: request + 1, At: clock})
	step(append(event, event...), lifecycle.Record{Intent: i, Phase: lifecycle.Launched, At: clock},
		lifecycle.Record{Intent: i, Phase: lifecycle.Done, Process: p, Answer: json.RawMessage(`{"pid":4000}`), At: clock},
		lifecycle.Record{Op: lifecycle.OpExit, Exec: id, Phase: lifecycle.Observed, Process: p, At: clock,
			Exit: &lifecycle.Exit{Status: 0, At: clock, Source: lifecycle.Reaped}})
	i = step(nil, lifecycle.Record{Op: lifecycle.OpDelete, Exec: id, Phase: lifecycle.Intent, Request: request + 2, At: clock})
	step(nil, lifecycle.Record{Intent: i, Phase: lifecycle.Done, Answer: json.RawMessage(`{"pid":4000,"status":0}`), At: clock})
	rows, err := j.Outbox()
	if err != nil {
		t.Fatal(err)
	}
	seqs := make([]uint64, len(rows))
	for i, r := range rows {
		seqs[i] = r.Seq
	}
	if err := j.Acknowledge(seqs...); err != nil {
		t.Fatal(err)
	}
	j.Forget(request + 3)
}

func TestSmallAfterTwentyThousandExecs(t *testing.T) {
	if n := len(execParams); n < 1400 || n > 1800 {
		t.Fatalf("the params are %d bytes", n)
	}
	j := createJournal(t)
	launch(t, j)
	var slowest time.Duration
	for i := range 20_000 {
		start := time.Now()
		runExec(t, j, fmt.Sprint("probe-", i%7), uint64(3*i+1))
		slowest = max(slowest, time.Since(start))
		if i%5000 == 4999 {
			j = reopen(t, j)
		}
	}
	info, err := os.Stat(j.path(t))
	if err != nil {
		t.Fatal(err)
	}
	records, err := j.Records()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("file %d KiB, %d records, slowest exec %s", info.Size()>>10, len(records), slowest)
	if info.Size() >= 1<<20 || len(records) > 1000 {
		t.Errorf("%d bytes and %d records after 20,000 execs", info.Size(), len(records))
	}
	if n := j.State().DeletedExecs; n != 20_000 {
		t.Errorf("%d deleted execs", n)
	}
}

// TestOldRequestHoldsCompactionBack: while request 1 is unanswered nothing may be forgotten; afterwards the
// heap is removed a limited number of records at a time.
func TestOldRequestHoldsCompactionBack(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	held := func() int { return len(j.compact.entries) }
	for i := range 400 {
		runExec(t, j, "x", uint64(3*i+10))
		j.oldest.Store(1)
	}
	if n := held(); n < 2800 {
		t.Fatalf("only %d records are held", n)
	}
	j.Forget(1 << 40)
	for range 2000 {
		before := held()
		do(t, j, lifecycle.OpKill, "", nil)
		if n := before + 2 - held(); n > 2*compactLimit {
			t.Fatalf("%d records went at once", n)
		}
	}
	if n := held(); n > 300 {
		t.Errorf("%d records stay", n)
	}
	if n := j.State().DeletedExecs; n != 400 {
		t.Errorf("%d deleted execs", n)
	}
}

// TestFieldsOfANewerWriter: compaction keeps values whole, and removes the others whole.
func TestFieldsOfANewerWriter(t *testing.T) {
	j := createJournal(t)
	launch(t, j)
	path := j.path(t)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	const newer = `{"seq":1,"op":"create","phase":"intent","cgroup_driver":{"x":[1]}}`
	edit(func(tx *bbolt.Tx) error { return tx.Bucket(bucketJournal).Put(number(1), []byte(newer)) })(t, path)
	j, err := Open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	checked(t, j)
	for i := range 100 {
		runExec(t, j, "x", uint64(3*i+1))
	}
	if len(j.compact.entries) > 300 {
		t.Fatal("nothing was compacted")
	}
	if err := j.view(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(bucketJournal).Get(number(1)); string(v) != newer {
			t.Errorf("%s; want %s", v, newer)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk: a commit that does not fit fails, leaves everything as it was, and the journal works again
// when there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("needs a tmpfs of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	j, err := Create(dir, testMeta())
	if err != nil {
		t.Fatal(err)
	}
	checked(t, j)
	launch(t, j)
	filler := dir + "/filler"
	if err := os.WriteFile(filler, []byte(strings.Repeat("x", 100<<10)), 0o600); err != nil {
		t.Fatal(err)
	}
	before := j.State()
	for {
		_, _, err = j.Commit(nil, []Event{{Topic: "t", Value: make([]byte, 5000)}})
		if err != nil {
			break
		}
	}
	if !strings.Contains(err.Error(), unix.ENOSPC.Error()) || j.State() != before {
		t.Errorf("%v; want that there is no space", err)
	}
	if err := j.Check(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	do(t, j, lifecycle.OpKill, "", nil)
	reopen(t, j)
}
