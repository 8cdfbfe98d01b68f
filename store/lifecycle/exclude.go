package lifecycle

import "fmt"

// Target is an operation on one process of a container.
type Target struct {
	Op   Op
	Exec string // exec id, "" = init
}

func (t Target) String() string {
	if t.Exec == "" {
		return string(t.Op)
	}
	return fmt.Sprintf("%s of exec %q", t.Op, t.Exec)
}

// ops is a set of operations.
type ops map[Op]bool

func set(list ...Op) ops {
	s := ops{}
	for _, o := range list {
		s[o] = true
	}
	return s
}

// sameProcess[a][b]: a and b on one process wait for each other. It is symmetric.
//
//   - create, exec and delete are alone: before and after them there is no process.
//   - start, pause, resume, update and checkpoint write runc's state.json and the freezer, and go one by one.
//   - kill goes beside everything but a pause: with cgroup v1 a killed process that is frozen again stays.
//     In particular a start that hangs in a hook can be killed.
//   - close-io drains once.
var sameProcess = map[Op]ops{
	OpCreate:     set(Commands()...),
	OpExec:       set(Commands()...),
	OpDelete:     set(Commands()...),
	OpStart:      set(OpCreate, OpExec, OpDelete, OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint),
	OpPause:      set(OpCreate, OpExec, OpDelete, OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint, OpKill),
	OpResume:     set(OpCreate, OpExec, OpDelete, OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint),
	OpUpdate:     set(OpCreate, OpExec, OpDelete, OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint),
	OpCheckpoint: set(OpCreate, OpExec, OpDelete, OpStart, OpPause, OpResume, OpUpdate, OpCheckpoint),
	OpKill:       set(OpCreate, OpExec, OpDelete, OpPause),
	OpCloseIO:    set(OpCreate, OpExec, OpDelete, OpCloseIO),
}

// initAndExec[a][b]: a on init and b on an exec wait for each other.
//
//   - a container is created and deleted with none of its execs in motion.
//   - an exec is not started while init is (it would be refused, a moment too early), nor while the
//     freezer or CRIU is at work: runc exec hangs in a cgroup that is frozen under it.
var initAndExec = map[Op]ops{
	OpCreate:     set(Commands()...),
	OpDelete:     set(Commands()...),
	OpStart:      set(OpStart),
	OpPause:      set(OpStart),
	OpResume:     set(OpStart),
	OpCheckpoint: set(OpStart),
}

// Excludes says whether two commands on one container must not be under way at the same time. Commands on
// different execs never exclude each other. It is symmetric.
func Excludes(a, b Target) bool {
	switch {
	case a.Exec == b.Exec:
		return sameProcess[a.Op][b.Op]
	case a.Exec == "":
		return initAndExec[a.Op][b.Op]
	case b.Exec == "":
		return initAndExec[b.Op][a.Op]
	}
	return false
}

// BusyError is an operation that has to wait for an open intent. The caller decides whether it does.
type BusyError struct {
	Target
	Open Record // the intent to wait for, the oldest one where there are several
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("cannot %s now: %s is under way", e.Target, Target{e.Open.Op, e.Open.Exec})
}
