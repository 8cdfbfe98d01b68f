package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

var update = flag.Bool("update", false, "write the golden file and the examples in docs/journal-format.md")

const (
	golden   = "testdata/timeline.golden"
	document = "../docs/journal-format.md"
)

// story is a journal with one of everything, the same in every run.
func story(t *testing.T) *Journal {
	t.Helper()
	j := createJournal(t)
	tick := 0
	now := func() time.Time { tick++; return clock.Add(time.Duration(tick) * 1500 * time.Microsecond) }
	add := func(r lifecycle.Record, events ...Event) uint64 {
		t.Helper()
		r.At = now()
		for i := range events {
			events[i].At = r.At
		}
		out, _, err := j.Commit([]lifecycle.Record{r}, events)
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Seq
	}
	init, probe := &lifecycle.Process{Pid: 4711, Start: 98765}, &lifecycle.Process{Pid: 4790, Start: 98801}
	i := add(lifecycle.Record{Op: lifecycle.OpCreate, Phase: lifecycle.Intent, Request: 101, Params: json.RawMessage(`{"stdout":"/run/io/web-stdout"}`)})
	add(lifecycle.Record{Intent: i, Phase: lifecycle.Launched})
	add(lifecycle.Record{Intent: i, Phase: lifecycle.Done, Process: init, Cgroup: "0::/k8s.io/web", Answer: json.RawMessage(`{"pid":4711}`)},
		Event{Topic: "/tasks/create", TypeURL: "containerd.events.TaskCreate", Value: []byte("\n\x03web")})
	i = add(lifecycle.Record{Op: lifecycle.OpStart, Phase: lifecycle.Intent, Request: 102})
	add(lifecycle.Record{Intent: i, Phase: lifecycle.Done}, Event{Topic: "/tasks/start", TypeURL: "containerd.events.TaskStart", Value: []byte("\n\x03web")})
	add(lifecycle.Record{Op: lifecycle.OpExec, Exec: "probe", Phase: lifecycle.Done, Request: 103, Params: json.RawMessage(`{"args":["/healthz"]}`)})
	i = add(lifecycle.Record{Op: lifecycle.OpStart, Exec: "probe", Phase: lifecycle.Intent, Request: 104})
	add(lifecycle.Record{Intent: i, Phase: lifecycle.Done, Process: probe})
	i = add(lifecycle.Record{Op: lifecycle.OpPause, Phase: lifecycle.Intent, Request: 105})
	add(lifecycle.Record{Intent: i, Phase: lifecycle.Failed, Error: &lifecycle.Error{Code: "Unknown", Message: "runc: freezer\tnot supported\x1b[31m"}})
	add(lifecycle.Record{Op: lifecycle.OpOOM, Phase: lifecycle.Observed, OOM: &lifecycle.OOM{Told: 1, Kills: 1}})
	add(lifecycle.Record{Op: lifecycle.OpExit, Exec: "probe", Phase: lifecycle.Observed, Process: probe,
		Exit: &lifecycle.Exit{Status: 137, At: clock.Add(17 * time.Millisecond), Source: lifecycle.Reaped}},
		Event{Topic: "/tasks/exit", TypeURL: "containerd.events.TaskExit", Value: []byte("\n\x03web\x12\x05probe")})
	add(lifecycle.Record{Op: lifecycle.OpKill, Phase: lifecycle.Intent, Request: 106, Params: json.RawMessage(`{"signal":15}`)})
	if err := j.Acknowledge(1, 2); err != nil {
		t.Fatal(err)
	}
	return j
}

func TestTimeline(t *testing.T) {
	c, err := story(t).Contents()
	if err != nil {
		t.Fatal(err)
	}
	var have bytes.Buffer
	if err := Timeline(&have, c); err != nil {
		t.Fatal(err)
	}
	sameAsFile(t, golden, have.Bytes())
	for n := range have.Len() {
		if err := Timeline(&shortWriter{left: n}, c); !errors.Is(err, errShort) {
			t.Fatalf("a writer that fails after %d bytes: %v", n, err)
		}
	}
}

var errShort = errors.New("no room")

type shortWriter struct{ left int }

func (w *shortWriter) Write(b []byte) (int, error) {
	if len(b) > w.left {
		return w.left, errShort
	}
	w.left -= len(b)
	return len(b), nil
}

// TestDocument holds the examples in docs/journal-format.md to what is really written.
func TestDocument(t *testing.T) {
	j := story(t)
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: examples -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("the markers are gone")
	}
	sameAsFile(t, document, []byte(before+begin+examples(t, j)+end+after))
}

// examples shows one value of each bucket and key.
func examples(t *testing.T, j *Journal) string {
	var b strings.Builder
	show := func(bucket []byte, label string, value []byte) {
		if value == nil {
			t.Errorf("no example of %s/%s", bucket, label)
		}
		fmt.Fprintf(&b, "`%s` / `%s`\n\n```json\n%s\n```\n\n", bucket, label, value)
	}
	err := j.view(func(tx *bbolt.Tx) error {
		get := func(bucket, key []byte, label string) { show(bucket, label, tx.Bucket(bucket).Get(key)) }
		get(bucketMeta, keyContainer, "container")
		get(bucketJournal, number(3), "00 00 00 00 00 00 00 03")
		get(bucketJournal, number(12), "00 00 00 00 00 00 00 0c")
		get(bucketState, keyInit, "init")
		get(bucketState, stateKey("probe"), "exec/probe")
		get(bucketState, keyCounters, "counters")
		get(bucketOutbox, number(3), "00 00 00 00 00 00 00 03")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	base, err := json.Marshal(lifecycle.Base{DeletedExecs: 41, Forgotten: 1764515567000000101})
	if err != nil {
		t.Fatal(err)
	}
	show(bucketMeta, "compacted", base)
	return b.String()
}

func sameAsFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Errorf("%s differs (go test ./store -run 'Timeline|Document' -update):\n%s", path, want)
	}
}

// FuzzRecord decodes bytes as a record of a running container: whatever comes, it is refused or it is what the
// fold says it is, and it can be written again.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"seq":5,"op":"exec","phase":"done","exec":"a","to":"created","params":{"x":1}}`))
	f.Add([]byte(`{"seq":5,"op":"exit","phase":"observed","from":"running","to":"stopped","process":{"pid":10,"start":1},"exit":{"status":1,"at":"2027-01-01T00:00:00Z","source":"reaped"}}`))
	f.Add([]byte(`{"seq":5,"op":"kill","phase":"intent","from":"running","to":"running","at":"x"}`))
	f.Add([]byte(`{"seq":18446744073709551615,"op":"pause","phase":"failed","request":1,"error":null}`))
	running := &lifecycle.Container{}
	for _, r := range []lifecycle.Record{
		{Op: lifecycle.OpCreate, Phase: lifecycle.Intent},
		{Intent: 1, Phase: lifecycle.Done, Process: &lifecycle.Process{Pid: 10, Start: 1}, At: clock},
		{Op: lifecycle.OpStart, Phase: lifecycle.Intent},
		{Intent: 3, Phase: lifecycle.Done, At: clock},
	} {
		var err error
		if running, err = running.Apply(running.Stamp(r)); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r lifecycle.Record
		if err := decode(bucketJournal, number(5), data, &r); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v; want ErrDamaged", err)
			}
			return
		}
		next, err := running.Apply(r)
		if err != nil {
			return
		}
		if next.Process(r.Exec).State != r.To && (r.Exec == "" || r.To != lifecycle.Deleted) && r.From != r.To {
			t.Errorf("%+v leads to %q", r, next.Process(r.Exec).State)
		}
		written, err := json.Marshal(r)
		if err != nil {
			t.Skip() // a year beyond 9999 cannot come from a file we wrote
		}
		var again lifecycle.Record
		if err := decode(bucketJournal, number(5), written, &again); err != nil || !sameRecord(r, again) {
			t.Errorf("written as %s, read as %+v: %v", written, again, err)
		}
	})
}
