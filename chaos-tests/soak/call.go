package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
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
	trouble trouble // why an error was to be expected: a fault; "" for none
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
		text += " [" + string(a.trouble) + "]"
	}
	return text
}

// request is a call to be made: it fills in what it was answered.
type request struct {
	op     checker.Op
	exec   string
	signal int
	do     func(context.Context, tasks.TasksClient, *checker.Call) error
}

// ask makes a call once and notes it with its answer.
func (l *life) ask(r request) answer {
	t, daemon, err := l.s.access.tasks(l.ctx)
	if err != nil {
		return answer{err: err, code: codes.Canceled, trouble: runOver}
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
		if a.trouble != "" && !undone[a.trouble] {
			a.Code = checker.Unanswered // it may have happened all the same
		}
	}
	l.s.stats.call(a)
	l.note(a)
	return a
}

// unexpected is the violation of a call that was refused without a reason.
func unexpected(a answer) error { return fmt.Errorf("an answer that nothing explains: %s", a) }

// settle makes a call until it is answered: where a fault has taken the answer it looks whether it has happened, and
// asks again if it has not. What it returns is ok, or refused without trouble; it is ok too if an earlier one has happened
// and this one was refused for it.
func (l *life) settle(r request, happened func(state answer) bool) answer {
	var tries []answer
	for {
		a := l.ask(r)
		if a.ok() {
			l.happened(tries, answer{})
			return a
		}
		if a.trouble == "" && len(tries) == 0 || l.ctx.Err() != nil {
			return a
		}
		tries = append(tries, a)
		if now := l.state(r.exec); happened != nil && happened(now) {
			l.happened(tries, now)
			a.err, a.trouble, a.Pid = nil, "", now.Pid
			return a
		}
		if a.trouble == "" {
			return a
		}
		pause(l.ctx, retryPause)
	}
}

// once are operations that happen once, however often they are asked for until that is known.
var once = []checker.Op{checker.OpCreate, checker.OpStart, checker.OpExec, checker.OpPause, checker.OpResume}

// happened corrects the record of calls whose answers a fault has taken: the first one is what has happened, by the time at
// which the state shows it, and the others are not. Without a state none of them is. A process that has ended does not
// show whether it was started.
func (l *life) happened(tries []answer, now answer) {
	if len(tries) == 0 || !slices.Contains(once, tries[0].Op) || tries[0].Op == checker.OpStart && now.State == checker.Stopped {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	open := now.State != ""
	for _, a := range tries {
		i := slices.IndexFunc(l.calls, func(c checker.Call) bool { return c.Began == a.Began })
		switch {
		case i < 0 || l.calls[i].Code != checker.Unanswered:
		case open:
			open = false
			c := &l.calls[i]
			c.Code, c.Message, c.Ended = checker.OK, "", now.Ended
			if c.Op == checker.OpCreate || c.Op == checker.OpStart {
				c.Pid = now.Pid
			}
		default:
			l.calls[i].Code = checker.Code(a.code.String())
		}
	}
}

// retryPause is how long a client waits that met trouble.
const retryPause = 100 * time.Millisecond

// state asks for a process's state until it is answered. A process that is not there has State "".
func (l *life) state(exec string) answer {
	for began := l.s.clock.tick(); ; {
		a := l.ask(request{op: checker.OpState, exec: exec, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
			r, err := t.Get(ctx, &tasks.GetRequest{ContainerID: l.slot.ID, ExecID: exec})
			if err == nil && r.Process.Status == task.Status_UNKNOWN {
				return status.Error(codes.DeadlineExceeded, "containerd calls it unknown: it did not wait for the shim")
			}
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
