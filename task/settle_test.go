package task

import (
	"context"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/runtime"
	"perdure/store/lifecycle"
)

// witness is a machine that notes the signals that are sent and the streams that are closed.
type witness struct {
	Machine
	mu    sync.Mutex
	noted []string
}

func (m *witness) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noted = append(m.noted, what)
}

func (m *witness) Runtime(runtime.Config) Runtime { return quietRuntime{witness: m} }

func (m *witness) SignalProcess(int, uint64, unix.Signal) error {
	m.note("signal an exec")
	return nil
}

func (m *witness) CloseIO(_ runtime.Descriptors, prefix string) error {
	m.note("close " + prefix)
	return nil
}

// quietRuntime has nothing to do but to send signals.
type quietRuntime struct {
	Runtime
	witness *witness
}

func (quietRuntime) Clean(string)                     {}
func (quietRuntime) LoggedError(string, string) error { return nil }
func (r quietRuntime) Kill(context.Context, string, int) error {
	r.witness.note("signal the init")
	return nil
}

// TestWhatAJudgementAsksForIsDone: a kill that may not have been sent is sent once more before it is answered, and a
// start that has failed lets its streams go, or their readers would wait for ever.
func TestWhatAJudgementAsksForIsDone(t *testing.T) {
	for name, c := range map[string]struct {
		op     lifecycle.Op
		exec   string
		params string
		phase  lifecycle.Phase
		want   []string
	}{
		"kill of the init":         {lifecycle.OpKill, "", `{"signal":15}`, lifecycle.Done, []string{"signal the init"}},
		"kill of an exec":          {lifecycle.OpKill, "e", `{"signal":9}`, lifecycle.Done, []string{"signal an exec"}},
		"failed start":             {lifecycle.OpStart, "f", "", lifecycle.Failed, []string{"close c/web@/exec/f"}},
		"start that is made again": {lifecycle.OpStart, "f", "", lifecycle.Undone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &witness{Machine: NewMachine()}
			s := newStageOn(t, m, &clerk{}, silent{}).running()
			s.record(lifecycle.Record{Op: lifecycle.OpExec, Exec: "f", Phase: lifecycle.Done})
			seq := s.record(lifecycle.Record{Op: c.op, Exec: c.exec, Phase: lifecycle.Intent, Params: []byte(c.params)})
			s.svc.Settle = func(_ context.Context, r lifecycle.Record, _ Inspector) (lifecycle.Record, error) {
				outcome := lifecycle.Record{Op: r.Op, Exec: r.Exec, Phase: c.phase, Intent: r.Seq}
				if c.phase == lifecycle.Failed {
					outcome.Error = &lifecycle.Error{Code: "Unknown", Message: "no such file"}
				}
				return outcome, nil
			}
			if err := s.settleOpen(s.state().Open[seq]); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.noted, c.want) {
				t.Errorf("done: %v, want %v", m.noted, c.want)
			}
			if _, open := s.state().Open[seq]; open {
				t.Error("the intent is still open")
			}
		})
	}
}
