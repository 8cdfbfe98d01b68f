package store

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"perdure/store/lifecycle"
)

// BenchmarkCommit is three transactions beside 70 execs: an intent, an outcome with an event, its acknowledgement.
func BenchmarkCommit(b *testing.B) {
	j := seventyExecs(b)
	event := []Event{{Topic: "/tasks/oom", At: clock, TypeURL: "containerd.events.TaskOOM", Value: make([]byte, 20)}}
	row := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		i, _, err := j.Commit([]lifecycle.Record{{Op: lifecycle.OpKill, Phase: lifecycle.Intent, At: clock}}, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := j.Commit([]lifecycle.Record{{Intent: i[0].Seq, Phase: lifecycle.Done, At: clock}}, event); err != nil {
			b.Fatal(err)
		}
		row++
		if err := j.Acknowledge(row); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExec is the whole life of one exec with 1.5 KB of parameters: see runExec.
func BenchmarkExec(b *testing.B) {
	j := createJournal(b)
	launch(b, j)
	request := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		runExec(b, j, "probe", request)
		request += 3
	}
}

func BenchmarkOpen(b *testing.B) {
	j := seventyExecs(b)
	path := j.path(b)
	for b.Loop() {
		if err := j.Close(); err != nil {
			b.Fatal(err)
		}
		var err error
		if j, err = Open(path, 0); err != nil {
			b.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
}

func seventyExecs(b testing.TB) *Journal {
	j := createJournal(b)
	launch(b, j)
	for i := range 70 {
		id := fmt.Sprint("e", i)
		commit(b, j, lifecycle.Record{Op: lifecycle.OpExec, Exec: id, Phase: lifecycle.Done, Params: execParams})
		do(b, j, lifecycle.OpStart, id, &lifecycle.Process{Pid: i + 1, Start: 1})
	}
	return j
}

// BenchmarkOpenMemory reports the private memory of a process before and after it opens a journal of 70 execs.
func BenchmarkOpenMemory(b *testing.B) {
	j := seventyExecs(b)
	path := j.path(b)
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_TEST_MEMORY="+path)
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		var m memory
		if err := json.Unmarshal(out, &m); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(m.Before, "KiB-before")
		b.ReportMetric(m.Anonymous, "KiB-anonymous")
		b.ReportMetric(m.Heap, "KiB-heap")
	}
}
