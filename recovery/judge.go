package recovery

import "perdure/store/lifecycle"

// Observation is what is found of an open intent after every process of it
// that was still running has ended.
type Observation struct {
	Launched  bool   // the mark "user code may run from here" is journaled
	Ran       bool   // the runtime was executed for this intent
	Status    string // the runtime's word: "" (unknown to it), created, running, paused, stopped
	PidFile   int    // pid the runtime wrote for this intent, or that was found by its streams; 0 if none
	Unstarted bool   // the runtime's exec fifo is still there: Start has not let the init run
	Failure   string // the runtime's last error of this intent, "" if none
	Dumped    bool   // a checkpoint's image is complete
	Restores  bool   // the start of an init that is restored from a checkpoint: it brings the process up, as an exec's does
}

// Verdict is what is to be said of an open intent.
type Verdict string

const (
	Finish Verdict = "finish" // it happened: record the outcome
	Repeat Verdict = "repeat" // it may have happened and may happen twice: do it again, record the outcome
	Undo   Verdict = "undo"   // it did not, or can be repeated: as if it was never asked for
	Fail   Verdict = "fail"   // it failed, with the runtime's own words
	Lost   Verdict = "lost"   // user code may have run: never again, status unknown
)

// Judge decides an open intent. It is pure; every cell is tested.
func Judge(op lifecycle.Op, exec string, o Observation) Verdict {
	switch {
	case op == lifecycle.OpCreate:
		return judgeCreate(o)
	case op == lifecycle.OpStart && exec == "" && !o.Restores:
		return judgeStart(o)
	case op == lifecycle.OpStart:
		return judgeLaunch(o)
	case op == lifecycle.OpKill:
		return Repeat // undone, its replay could find the process it has ended, and be refused
	case op == lifecycle.OpPause:
		return finishIf(o.Status == "paused")
	case op == lifecycle.OpResume:
		return finishIf(o.Status == "running")
	case op == lifecycle.OpCheckpoint:
		return judgeCheckpoint(o)
	}
	return Undo // update, delete: a replay does it again
}

func finishIf(happened bool) Verdict {
	if happened {
		return Finish
	}
	return Undo
}

// judgeCheckpoint: a container that still runs can be dumped once more. One that
// is gone cannot: it was dumped if the image is complete, and otherwise it has
// ended of something else, which its replay will be told.
func judgeCheckpoint(o Observation) Verdict {
	gone := o.Status == "stopped" || o.Status == ""
	switch {
	case o.Failure != "":
		return Fail
	case o.Ran && gone && o.Dumped:
		return Finish
	}
	return Undo
}

// judgeCreate: no user code runs before Start, so a create that is not
// complete is removed and may be made again. One that the runtime itself has
// failed and cleaned up would fail again, and where workers die often nobody
// would live to tell.
func judgeCreate(o Observation) Verdict {
	switch {
	case o.Status != "" && o.PidFile != 0:
		return Finish
	case o.Status == "" && o.Failure != "":
		return Fail
	}
	return Undo
}

// judgeStart: runc removes the exec fifo when the init goes on to user code.
func judgeStart(o Observation) Verdict {
	if o.Launched && o.Status != "" && o.Status != "created" && !o.Unstarted {
		return Finish
	}
	return Undo
}

// judgeLaunch: without the mark nothing was forked, and with it the worker may
// still have died before the runtime was executed. After that runc writes the pid
// file about 2 ms after user code runs (runc 1.1.5), so its absence proves
// nothing unless runc said that it failed.
func judgeLaunch(o Observation) Verdict {
	switch {
	case !o.Launched || !o.Ran:
		return Undo
	case o.PidFile != 0:
		return Finish
	case o.Failure != "":
		return Fail
	}
	return Lost
}
