package recovery

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"perdure/store/lifecycle"
)

// Runtime is how the world is looked at.
type Runtime interface {
	// WaitOrphans waits for every process that a dead worker's call of the
	// runtime left running.
	WaitOrphans(ctx context.Context, intent string) error
	// Ran reports whether the runtime was executed at all.
	Ran(intent string) bool
	PidFile(intent string) (int, bool)
	IntentError(intent string) (string, bool)
	// Status returns an error of class ErrNotFound where the runtime does
	// not know the container.
	Status(ctx context.Context) (status string, pid int, err error)
	Unstarted() bool
}

// Settle returns the outcomes of a container's open intents in the order of
// the intents. A lost process gets two records: a failed start and an exit
// with status unknown.
func Settle(ctx context.Context, state *lifecycle.Container, runtime Runtime) ([]lifecycle.Record, error) {
	var open []lifecycle.Record
	for _, r := range state.Open {
		open = append(open, r)
	}
	slices.SortFunc(open, func(a, b lifecycle.Record) int { return int(int64(a.Seq) - int64(b.Seq)) })
	var outcomes []lifecycle.Record
	for _, intent := range open {
		o, err := observe(ctx, intent, runtime)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name(intent), err)
		}
		outcomes = append(outcomes, outcome(intent, o)...)
	}
	return outcomes, nil
}

func observe(ctx context.Context, intent lifecycle.Record, runtime Runtime) (Observation, error) {
	o := Observation{Launched: intent.Phase == lifecycle.Launched}
	if !looks(intent) {
		return o, nil
	}
	if err := runtime.WaitOrphans(ctx, name(intent)); err != nil {
		return o, fmt.Errorf("wait for the runtime's processes: %w", err)
	}
	status, _, err := runtime.Status(ctx)
	if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
		return o, fmt.Errorf("ask the runtime: %w", err)
	}
	o.Status = status
	o.Ran = runtime.Ran(name(intent))
	o.PidFile, _ = runtime.PidFile(name(intent))
	o.Failure, _ = runtime.IntentError(name(intent))
	o.Unstarted = runtime.Unstarted()
	return o, nil
}

// looks reports whether the judgement of an intent depends on the world, or a
// process of it may still be at work.
func looks(intent lifecycle.Record) bool {
	return intent.Op != lifecycle.OpExec
}

func outcome(intent lifecycle.Record, o Observation) []lifecycle.Record {
	r := lifecycle.Record{Op: intent.Op, Exec: intent.Exec, Intent: intent.Seq, Request: intent.Request}
	switch Judge(intent.Op, intent.Exec, o) {
	case Finish, Repeat:
		r.Phase = lifecycle.Done
		if o.PidFile != 0 {
			r.Process = &lifecycle.Process{Pid: o.PidFile}
		}
	case Undo:
		r.Phase = lifecycle.Undone
	case Fail:
		r.Phase = lifecycle.Failed
		r.Error = &lifecycle.Error{Code: "Unknown", Message: o.Failure}
	case Lost:
		r.Phase = lifecycle.Failed
		r.Error = &lifecycle.Error{Code: "Unknown", Message: "the runtime ended without a word while the process was started: it may have run, and is not run again"}
		return []lifecycle.Record{r, {Op: lifecycle.OpExit, Phase: lifecycle.Observed, Exec: intent.Exec}}
	}
	return []lifecycle.Record{r}
}

// name is how the intent's files and processes are called (see package
// runtime).
func name(intent lifecycle.Record) string { return fmt.Sprintf("%s-%d", intent.Op, intent.Seq) }
