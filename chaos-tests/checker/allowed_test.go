package checker

import (
	"slices"
	"testing"
)

// What looks odd and is right: each of these must pass every rule.
var allowed = []struct {
	name  string
	spoil func(h *History)
}{
	{"what is unfinished lacks events", func(h *History) { h.Over, h.Events = false, h.Events[:started] }},
	{"a call that overlaps a pause may see either", func(h *History) {
		h.Calls[pausedState].Began, h.Calls[pausedState].State = 9, Running
	}},
	{"a pause that nobody saw answered may come at any time", func(h *History) {
		h.Calls[pause].Code = Unanswered
		h.Calls[resume].Code, h.Calls[runningState].State = FailedPrecondition, Paused
		h.Events = slices.Delete(h.Events, resumed, resumed+1)
		h.Looks = nil
	}},
	{"unknown is 255 where nobody can know", func(h *History) { h.Runs[0].Unknowable = true; h.allSay(UnknownStatus) }},
	{"either of two ends", func(h *History) { h.Runs[0].Statuses = []uint32{0, 137} }},
	{"a status nobody knows", func(h *History) { h.Runs[0].Statuses = nil; h.allSay(3) }},
	{"a keeper's death: containerd deletes, and tells what was told again", func(h *History) {
		h.Calls[del].Code, h.Calls[delAgain].Code = Unanswered, NotFound
		h.Calls[delAgain].Request = 0
		h.Events = append(h.Events, h.Events[exit], h.Events[deleted])
	}},
	{"a task that was not to be: containerd tells its end", func(h *History) {
		*h = History{
			Over:  true,
			Calls: []Call{{Target: c1, Began: 1, Ended: 2, Op: OpCreate, Code: Unanswered}, {Target: c1, Began: 2, Ended: 9, Op: OpDelete, Code: Unanswered}},
			Events: []Event{
				{Target: c1, At: 3, Name: "exit", Status: UnknownStatus, ExitedAt: ended, Time: ended, Raw: "X"},
				{Target: c1, At: 4, Name: "delete", Status: UnknownStatus, ExitedAt: ended, Time: ended, Raw: "D"},
			},
		}
	}},
	{"an id that lives again", func(h *History) {
		again := good()
		for i := range again.Calls {
			again.Calls[i].Life, again.Calls[i].Pid, again.Calls[i].Start, again.Calls[i].Request = 2, 0, 0, 0
			again.Calls[i].Began += 100
			again.Calls[i].Ended += 100
		}
		for i := range again.Events {
			again.Events[i].Life, again.Events[i].Pid = 2, 20
		}
		h.Calls, h.Events = append(h.Calls, again.Calls...), append(h.Events, again.Events[:execExit]...)
		h.Over = false
	}},
	{"an early kill leaves no mark", func(h *History) { h.Runs[1].Starts = NotCounted }},
	{"an output cut short by a kill", func(h *History) { h.Runs[1].Streams[0] = Stream{"stdout", "hello", "he", true} }},
	{"an init that is gone while an exec lives on runs, to clients", func(h *History) {
		h.Looks = []Look{{Target: c1, Began: 17, Ended: 18, State: Running, Runtime: Stopped}}
	}},
	{"a look in the middle of a command", func(h *History) { h.Looks[0] = Look{Target: c1, Began: 9, Ended: 11, State: Running, Runtime: Paused} }},
	{"an OOM before the exit it explains", func(h *History) {
		h.Runs[1].OOM = true
		h.Events = slices.Insert(h.Events, execExit, Event{Target: c1, Name: "oom", Raw: "O", Time: began})
	}},
	{"an exec that is added and never started", func(h *History) {
		e2 := Target{"c1", 1, "e2"}
		h.Calls = append(h.Calls, Call{Target: e2, Began: 17, Ended: 18, Op: OpExec}, Call{Target: e2, Began: 19, Ended: 20, Op: OpDelete})
		h.Events = slices.Insert(h.Events, execExit, Event{Target: e2, Name: "exec-added", Raw: "A2", Time: began})
	}},
	{"a start that was given up, and what it started has ended as unknown", func(h *History) {
		h.Calls[startExec].Code, h.Calls[startExec].Pid = Unanswered, 0
		h.Calls[waitExec].Status, h.Calls[deleteExec].Status = UnknownStatus, UnknownStatus
		h.Runs[1].Unknowable = true
		h.Events = slices.Delete(h.Events, execStarted, execStarted+1)
		for _, i := range []int{execExit - 1, execExit} {
			h.Events[i].Status = UnknownStatus
		}
	}},
	{"a container that has just ended refuses a pause, and State does not know yet", func(h *History) {
		h.Calls[kill].Began, h.Calls[kill].Ended = 17, 18
		h.Calls[runningState].Began, h.Calls[runningState].Ended = 27, 28
		h.Calls = append(h.Calls, Call{Target: c1, Began: 25, Ended: 26, Op: OpPause, Code: FailedPrecondition})
	}},
	{"a paused container refuses a pause, and is killed in the end", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: c1, Began: 11, Ended: 12, Op: OpPause, Code: FailedPrecondition})
	}},
	{"a start that is refused because an earlier one that nobody saw answered has happened", func(h *History) {
		h.Calls[startExec].Code = Unanswered
		h.Calls = append(h.Calls, Call{Target: e1, Began: 9, Ended: 10, Op: OpStart, Code: FailedPrecondition})
	}},
	{"an exec whose start was refused has no end", func(h *History) {
		h.refuseExec()
		h.Runs[1] = Run{Target: e1, Starts: 0, Ended: true}
	}},
	{"an exec whose start nobody saw answered may not have run, and has no end then", func(h *History) {
		h.loseExec()
		h.Runs[1] = Run{Target: e1, Starts: 0, Ended: true}
	}},
	{"a kill that is sent after it was answered, and one of a process that ends meanwhile", func(h *History) {
		h.heard(Signal{At: 19, Number: 9}, Signal{At: 23, Number: 9})
		h.again(kill, 17, 18)
		h.again(kill, 29, 30)
	}},
	{"a kill whose signal was sent before it was answered a second time", func(h *History) {
		h.heard(Signal{At: 23, Number: 9})
		h.Runs[0].EndedAt = 0
		h.Runs[0].Ended = false
		h.Calls[kill].Request = 9
		h.again(kill, 25, 26)
	}},
	{"two kills at the same time, and one signal", func(h *History) {
		h.heard(Signal{At: 24, Number: 9})
		h.again(kill, 23, 25)
	}},
	{"a paused container refuses a pause", func(h *History) {
		h.alive()
		h.Calls = append(h.Calls, Call{Target: c1, Began: 11, Ended: 12, Op: OpPause, Code: FailedPrecondition})
	}},
}

func TestWhatIsOddIsAllowed(t *testing.T) {
	for _, a := range allowed {
		t.Run(a.name, func(t *testing.T) {
			h := good()
			a.spoil(&h)
			for _, err := range Check(h) {
				t.Error(err)
			}
		})
	}
}
