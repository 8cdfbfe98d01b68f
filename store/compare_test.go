package store

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"perdure/store/lifecycle"
)

// TestEveryFieldOfAStateIsCompared: a state that has changed in the file, in whatever field, contradicts the journal and is
// not believed. The pid, the status and the time of a process are what containerd is told.
func TestEveryFieldOfAStateIsCompared(t *testing.T) {
	whole := func() lifecycle.ProcessState {
		return lifecycle.ProcessState{
			State: lifecycle.Stopped, Process: lifecycle.Process{Pid: 10, Start: 1}, Started: clock,
			Exit: &lifecycle.Exit{Status: 7, At: clock.Add(time.Second), Source: lifecycle.Reaped},
		}
	}
	for name, change := range map[string]func(p *lifecycle.ProcessState){
		"nothing":     func(*lifecycle.ProcessState) {},
		"state":       func(p *lifecycle.ProcessState) { p.State = lifecycle.Running },
		"pid":         func(p *lifecycle.ProcessState) { p.Process.Pid++ },
		"start time":  func(p *lifecycle.ProcessState) { p.Process.Start++ },
		"started":     func(p *lifecycle.ProcessState) { p.Started = p.Started.Add(1) },
		"no exit":     func(p *lifecycle.ProcessState) { p.Exit = nil },
		"exit status": func(p *lifecycle.ProcessState) { p.Exit.Status++ },
		"exit time":   func(p *lifecycle.ProcessState) { p.Exit.At = p.Exit.At.Add(1) },
		"exit source": func(p *lifecycle.ProcessState) { p.Exit.Source = lifecycle.Unknown },
		"stdin":       func(p *lifecycle.ProcessState) { p.StdinClosed = true },
		"oom":         func(p *lifecycle.ProcessState) { p.OOM.Told++ },
		"cgroup":      func(p *lifecycle.ProcessState) { p.Cgroup = "0::/x" },
		"params":      func(p *lifecycle.ProcessState) { p.Params = json.RawMessage(`{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			j := createJournal(t)
			launch(t, j)
			p := whole()
			commit(t, j, lifecycle.Record{Op: lifecycle.OpExit, Phase: lifecycle.Observed, Process: &p.Process, Exit: p.Exit})
			path := j.path(t)
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			change(&p)
			boltUpdate(t, path, &bbolt.Options{}, func(tx *bbolt.Tx) error { return put(tx.Bucket(bucketState), keyInit, p) })
			opened, err := Open(path, 0)
			if err == nil {
				checked(t, opened)
			}
			if want := name != "nothing"; errors.Is(err, ErrDamaged) != want {
				t.Errorf("damaged: %t (%v), want %t", !want, err, want)
			}
		})
	}
}
