package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/wait"
)

// callLimit is how long a client waits for one answer: no call but Wait takes longer than this, whatever is done to its shim.
const callLimit = 90 * time.Second

// answer is what became of one call.
type answer struct {
	checker.Call
	code    codes.Code
	err     error
	trouble string // why an error was to be expected: a fault; "" for none
}

func (a answer) ok() bool { return a.err == nil }

// is says whether the call was refused with one of the codes, by the shim's or containerd's own judgement.
func (a answer) is(allowed ...codes.Code) bool {
	for _, code := range allowed {
		if a.trouble == "" && a.err != nil && a.code == code {
			return true
		}
	}
	return false
}

func (a answer) String() string {
	text := a.Call.String()
	if a.trouble != "" {
		text += " [" + a.trouble + "]"
	}
	return text
}

// request is a call to be made: it fills in what it was answered.
type request struct {
	op     checker.Op
	exec   string
	signal int
	limit  time.Duration // callLimit if 0; Wait has none
	do     func(context.Context, tasks.TasksClient, *checker.Call) error
}

// ask makes a call once and notes it with its answer.
func (l *life) ask(r request) answer {
	t, daemon, err := l.s.access.tasks(l.ctx)
	if err != nil {
		return answer{err: err, code: codes.Canceled, trouble: "the run is over"}
	}
	ctx, cancel := context.WithCancel(l.ctx)
	if r.op != checker.OpWait { // also when the run is broken off: what was begun is not left half done
		ctx, cancel = context.WithTimeout(context.WithoutCancel(l.ctx), wait.Limit(callLimit))
	}
	defer cancel()
	a := answer{Call: checker.Call{Target: l.target(r.exec), Op: r.op, Signal: r.signal}}
	a.Began = l.s.clock.tick()
	a.err = r.do(ctx, t, &a.Call)
	a.Ended = l.s.clock.tick()
	a.code = status.Code(a.err)
	if a.err != nil {
		a.Code, a.Message = checker.Code(a.code.String()), errgrpc.ToNative(a.err).Error()
		a.trouble = l.excuse(a, daemon)
		if a.trouble != "" && a.trouble != fullDisk && a.trouble != notFrozen && a.trouble != frozen {
			a.Code = checker.Unanswered // it may have happened all the same
		}
	}
	l.s.stats.call(a)
	l.note(a)
	return a
}

// What excuses an error.
const (
	fullDisk         = "the disk was full"
	containerdKilled = "containerd was killed"
	unsettled        = "the disk was full, and something is not settled yet"
	runcKilled       = "runc was killed"
	frozen           = "runc has frozen it for a signal"
	notFrozen        = "runc could not freeze"
)

// excuse says which fault an error is the allowed result of, "" for none. This is the whole list:
//
//   - containerd was killed: gRPC's Unavailable or Canceled.
//   - the disk was full: the kernel's words for that, from whoever met it first. Nothing has happened then.
//   - the disk was full, or was until a moment ago: the same, from a recovery that cannot settle what is under way and is
//     tried again. That may be the very call that asks, whose effect is in the world.
//   - the disk was full: a start of an exec whose runc could write neither its log nor its pidfile.
//   - runc was killed: any error of a call that has used it, which says that it was killed.
//   - runc gave up to freeze a cgroup, in its own words: version 1.1.5 tries so often only, and with cgroup v1 a process that
//     is just being forked is in its way. Nothing has happened then.
//   - runc freezes a container while it signals all of its processes (cgroup v1), and refuses an exec just then. Nothing has
//     happened.
//   - containerd itself waits for State for 2 s only (io.containerd.timeout.task.state), which a worker that is stopped, or
//     a busy machine, can take. For how long a client may go without an answer then, see state.
func (l *life) excuse(a answer, daemon int) string {
	touched := func(kinds ...faultKind) bool { return len(l.s.faults.during(l.slot, a.Began, a.Ended, kinds...)) > 0 }
	lately := func(kind faultKind) bool {
		from := a.Began - min(a.Began, uint64(settleAgain.Microseconds()))
		return len(l.s.faults.during(l.slot, from, a.Ended, kind)) > 0
	}
	switch {
	case errors.Is(l.ctx.Err(), context.Canceled):
		return "the run is over"
	case cut(a.code) && l.s.access.died(daemon):
		return containerdKilled
	case strings.Contains(a.Message, notSettled) && strings.Contains(a.Message, noSpace) && lately(faultDisk):
		return unsettled
	case strings.Contains(a.Message, withoutWords) && touched(faultDisk):
		return "runc could not write"
	case strings.Contains(a.Message, noSpace) && touched(faultDisk):
		return fullDisk
	case a.Op == checker.OpCreate && strings.HasSuffix(a.Message, wordless) && touched(faultDisk):
		return fullDisk
	case killed(a.Message) && touched(faultRuncKill):
		return runcKilled
	case a.Op == checker.OpPause && strings.Contains(a.Message, "unable to freeze"):
		return notFrozen
	case a.Op == checker.OpStart && a.Exec != "" && strings.Contains(a.Message, "cannot exec in a paused container") && l.signalledAll(a):
		return frozen
	case a.code == codes.DeadlineExceeded && a.Op == checker.OpState && a.Ended-a.Began < uint64(callLimit.Microseconds()):
		return "containerd did not wait"
	}
	return ""
}

// unexpected is the violation of a call that was refused without a reason.
func unexpected(a answer) error { return fmt.Errorf("an answer that nothing explains: %s", a) }

// settleAgain is how long after its cause has gone a recovery may still say that it is in trouble.
const settleAgain = 15 * time.Second

// killed says whether an error tells of a runc that SIGKILL has ended.
func killed(message string) bool {
	return strings.Contains(message, "signal: killed") || strings.Contains(message, "exit status 137") ||
		strings.Contains(message, withoutWords)
}

// What errors say.
const (
	noSpace      = "no space left on device"                                    // ENOSPC
	notSettled   = "is under way, and cannot be settled yet, it is tried again" // a recovery that is in trouble
	wordless     = "did not terminate successfully: exit status 1"              // of a runc that cannot even open its log
	withoutWords = "the runtime ended without a word"                           // of an exec that may have run
)

// settle makes a call until it is answered: where a fault has taken the answer it looks whether it has happened, and
// asks again if it has not. What it returns is ok, or refused without trouble.
func (l *life) settle(r request, happened func(state answer) bool) answer {
	for troubled := false; ; troubled = true {
		a := l.ask(r)
		// Refused, because an earlier one has happened meanwhile, is as good as ok.
		if a.ok() || a.trouble == "" && !troubled || l.ctx.Err() != nil {
			return a
		}
		if now := l.state(r.exec); happened != nil && happened(now) {
			a.err, a.trouble, a.Pid = nil, "", now.Pid
			return a
		}
		if a.trouble == "" {
			return a
		}
		pause(l.ctx, retryPause)
	}
}

// retryPause is how long a client waits that met trouble.
const retryPause = 100 * time.Millisecond

// state asks for a process's state until it is answered. A process that is not there has State "".
func (l *life) state(exec string) answer {
	for began := l.s.clock.tick(); ; {
		a := l.ask(request{op: checker.OpState, exec: exec, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
			r, err := t.Get(ctx, &tasks.GetRequest{ContainerID: l.slot.ID, ExecID: exec})
			if err == nil {
				c.Pid = int(r.Process.Pid)
				c.State = strings.ToLower(r.Process.Status.String())
				if c.State == checker.Stopped {
					c.Status, c.ExitedAt = r.Process.ExitStatus, at(r.Process.ExitedAt)
				}
			}
			return err
		}})
		if a.ok() || a.is(codes.NotFound) || l.ctx.Err() != nil {
			return a
		}
		if a.trouble == "" || a.Ended-began > uint64(wait.Limit(callLimit).Microseconds()) {
			l.fail(unexpected(a))
			return a
		}
		pause(l.ctx, retryPause)
	}
}

// at is a time of an answer, zero where there is none.
func at(t *timestamppb.Timestamp) (none time.Time) {
	if t == nil {
		return none
	}
	return t.AsTime()
}
