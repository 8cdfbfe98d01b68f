package recovery

import (
	"context"
	"errors"
	"fmt"

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
	// Stray finds an exec's process, or a restored init, that the runtime has
	// started without living to write its pid.
	Stray(exec string) (pid int, ok bool)
	// Dumped reports whether the image of a checkpoint is complete.
	Dumped(intent lifecycle.Record) bool
	// Restores reports whether the init comes from a checkpoint.
	Restores() bool
	// Status returns an error of class ErrNotFound where the runtime does
	// not know the container.
	Status(ctx context.Context) (status string, err error)
	Unstarted() bool
}

// Settle returns the outcome of an open intent. That of a lost process is a
// failed start with an exit: the two have to be recorded together.
func Settle(ctx context.Context, intent lifecycle.Record, runtime Runtime) (lifecycle.Record, error) {
	o, err := observe(ctx, intent, runtime)
	return outcome(intent, o), err
}

// asksRuntime are the operations whose judgement depends on the runtime's word. The others do not depend on a runtime
// that answers: a delete may have removed what it was to be asked about.
var asksRuntime = map[lifecycle.Op]bool{
	lifecycle.OpCreate: true, lifecycle.OpStart: true, lifecycle.OpPause: true, lifecycle.OpResume: true, lifecycle.OpCheckpoint: true,
}

func observe(ctx context.Context, intent lifecycle.Record, runtime Runtime) (Observation, error) {
	o := Observation{
		Launched: intent.Phase == lifecycle.Launched,
		Restores: intent.Exec == "" && intent.Op == lifecycle.OpStart && runtime.Restores(),
	}
	if err := runtime.WaitOrphans(ctx, intent.IntentName()); err != nil {
		return o, fmt.Errorf("wait for the runtime's processes: %w", err)
	}
	if intent.Exec == "" && asksRuntime[intent.Op] { // the runtime knows nothing of a single exec
		status, err := runtime.Status(ctx)
		if err != nil && !errors.Is(err, errdefs.ErrNotFound) {
			return o, fmt.Errorf("ask the runtime: %w", err)
		}
		o.Status = status
	}
	o.Dumped = intent.Op == lifecycle.OpCheckpoint && runtime.Dumped(intent)
	o.Ran = runtime.Ran(intent.IntentName())
	o.PidFile, _ = runtime.PidFile(intent.IntentName())
	if o.PidFile == 0 && o.Launched && (intent.Exec != "" || o.Restores) {
		o.PidFile, _ = runtime.Stray(intent.Exec)
	}
	o.Failure, _ = runtime.IntentError(intent.IntentName())
	o.Unstarted = runtime.Unstarted()
	return o, nil
}

func outcome(intent lifecycle.Record, o Observation) lifecycle.Record {
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
		r.Exit = &lifecycle.Exit{Status: lifecycle.UnknownStatus, Source: lifecycle.Unknown}
	}
	return r
}
