package checker

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	c1    = Target{"c1", 1, ""}
	e1    = Target{"c1", 1, "e1"}
	began = time.Unix(1000, 0)
	ended = time.Unix(1010, 0)
)

// exec is how e1 ended, init how c1 did.
var (
	execEnd = ended.Add(-time.Second)
	initEnd = ended
)

// good is a whole life with one exec and a pause, as it should be. Each call gets a fresh one to spoil.
func good() History {
	return History{
		Over: true,
		Calls: []Call{
			{Target: c1, Began: 1, Ended: 2, Op: OpCreate, Pid: 10, Start: 77},
			{Target: c1, Began: 3, Ended: 4, Op: OpStart, Pid: 10, Start: 77},
			{Target: e1, Began: 5, Ended: 6, Op: OpExec},
			{Target: e1, Began: 7, Ended: 8, Op: OpStart, Pid: 11},
			{Target: e1, Began: 7, Ended: 20, Op: OpWait, Status: 4, ExitedAt: execEnd},
			{Target: c1, Began: 9, Ended: 10, Op: OpPause},
			{Target: c1, Began: 11, Ended: 12, Op: OpState, State: Paused, Pid: 10},
			{Target: c1, Began: 13, Ended: 14, Op: OpResume},
			{Target: c1, Began: 15, Ended: 16, Op: OpState, State: Running, Pid: 10},
			{Target: e1, Began: 21, Ended: 22, Op: OpDelete, Status: 4, ExitedAt: execEnd, Pid: 11},
			{Target: c1, Began: 23, Ended: 24, Op: OpKill, Signal: 9},
			{Target: c1, Began: 5, Ended: 30, Op: OpWait, Status: 137, ExitedAt: initEnd},
			{Target: c1, Began: 31, Ended: 32, Op: OpState, State: Stopped, Status: 137, ExitedAt: initEnd, Pid: 10},
			{Target: c1, Began: 33, Ended: 34, Op: OpDelete, Status: 137, ExitedAt: initEnd, Pid: 10, Request: 8},
			{Target: c1, Began: 35, Ended: 36, Op: OpDelete, Status: 137, ExitedAt: initEnd, Pid: 10, Request: 8},
			{Target: c1, Began: 37, Ended: 38, Op: OpState, Code: NotFound},
		},
		Events: []Event{
			{Target: c1, At: 2, Name: "create", Pid: 10, Time: began, Raw: "C"},
			{Target: c1, At: 4, Name: "start", Pid: 10, Time: began, Raw: "S"},
			{Target: e1, At: 6, Name: "exec-added", Time: began, Raw: "A"},
			{Target: e1, At: 8, Name: "exec-started", Pid: 11, Time: began, Raw: "B"},
			{Target: c1, At: 10, Name: "paused", Time: began, Raw: "P"},
			{Target: c1, At: 14, Name: "resumed", Time: began, Raw: "R"},
			{Target: e1, At: 20, Name: "exit", Pid: 11, Status: 4, ExitedAt: execEnd, Time: execEnd, Raw: "X1"},
			{Target: e1, At: 21, Name: "exit", Pid: 11, Status: 4, ExitedAt: execEnd, Time: execEnd, Raw: "X1"},
			{Target: c1, At: 30, Name: "exit", Pid: 10, Status: 137, ExitedAt: initEnd, Time: initEnd, Raw: "X"},
			{Target: c1, At: 34, Name: "delete", Pid: 10, Status: 137, ExitedAt: initEnd, Time: initEnd, Raw: "D"},
		},
		Runs: []Run{
			{Target: c1, Starts: 1, Pid: 10, Start: 77, Ended: true, Statuses: []uint32{137}},
			{Target: e1, Starts: 1, Pid: 11, Ended: true, Statuses: []uint32{4}, Streams: []Stream{{Name: "stdout", Want: "hello", Got: "hello"}}},
		},
		Looks: []Look{{Target: c1, Began: 17, Ended: 18, State: Running, Runtime: Running, Pid: 10}},
	}
}

func TestAGoodLifeIsGood(t *testing.T) {
	for _, err := range Check(good()) {
		t.Error(err)
	}
}

// The calls, events and runs of good, by place.
const (
	create, start, addExec, startExec, waitExec, pause, pausedState, resume, runningState, deleteExec, kill, wait, stoppedState, del, delAgain, goneState = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
	created, started, added, execStarted, paused, resumed, execExit, execExitAgain, exit, deleted                                                         = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
)

// bad histories, each with the rule that must catch it and words of the error.
var bad = []struct {
	name  string
	rule  string
	words string
	spoil func(h *History)
}{
	{"another init after a crash", "Identity", "process 10", func(h *History) { h.Calls[runningState].Pid = 12 }},
	{"a pid that is used again", "Identity", "started at tick 77", func(h *History) { h.Calls[start].Start = 78 }},
	{"the runtime has another init", "Identity", "the runtime at tick 17", func(h *History) { h.Looks[0].Pid = 12 }},
	{"an event with another pid", "Identity", "event exit", func(h *History) { h.Events[exit].Pid = 12 }},
	{"two inits of one life", "Identity", "answered ok twice: create", func(h *History) { h.again(create, 3, 4) }},
	{"an exec id given twice", "Identity", "answered ok twice: exec", func(h *History) { h.again(addExec, 17, 18) }},
	{"a start that is answered twice", "Identity", "answered ok twice: start", func(h *History) { h.again(startExec, 17, 18) }},

	{"a create that is forgotten", "Acknowledged", "create of c1", func(h *History) { h.Calls[runningState].Code = NotFound }},
	{"a start that is forgotten", "Acknowledged", "start of c1", func(h *History) { h.Calls[runningState].State = Created }},
	{"a pause that is forgotten", "Acknowledged", "pause of c1", func(h *History) { h.Calls[pausedState].State = Running }},
	{"a resume that is forgotten", "Acknowledged", "resume of c1", func(h *History) { h.Calls[runningState].State = Paused }},
	{"an exec that is forgotten", "Acknowledged", "exec of c1", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: e1, Began: 10, Ended: 11, Op: OpState, Code: NotFound})
	}},
	{"an exec id that is not reserved", "Acknowledged", "exec of c1", func(h *History) { h.again(addExec, 17, 18) }},
	{"a delete that is forgotten", "Acknowledged", "delete of c1", func(h *History) {
		h.Calls[goneState].Code, h.Calls[goneState].State = OK, Stopped
		h.Calls[goneState].Status, h.Calls[goneState].ExitedAt = 137, initEnd
	}},
	{"an exec's delete that is forgotten", "Acknowledged", "exec e1", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: e1, Began: 25, Ended: 26, Op: OpState, State: Stopped, Status: 4, ExitedAt: execEnd})
	}},
	{"up but dead", "Acknowledged", "wait of c1", func(h *History) { h.Calls[stoppedState].State = Running }},
	{"up after the exit event", "Acknowledged", "event exit", func(h *History) {
		h.Calls[stoppedState].State, h.Calls[wait].Code = Running, Unanswered
	}},
	{"a kill without an end", "Acknowledged", "kill of c1", func(h *History) {
		h.Calls, h.Events, h.Runs[0].Ended = h.Calls[:kill+1], h.Events[:exit], false
	}},

	{"a kill that was never sent, and one at the end that was", "Acknowledged", "signal 9 was not sent before tick 23", func(h *History) {
		h.heard(Signal{At: 23, Number: 9})
		h.again(kill, 17, 18)
	}},
	{"a signal that was never sent, and whose process lives on", "Acknowledged", "signal 15 was not sent", func(h *History) {
		h.alive()
		h.Runs[0].Heard = true
		h.Calls = append(h.Calls, Call{Target: c1, Began: 40, Ended: 41, Op: OpKill, Signal: 15})
	}},
	{"another signal than the one that was asked for", "Acknowledged", "signal 10 was not sent", func(h *History) {
		h.heard(Signal{At: 18, Number: 12}, Signal{At: 23, Number: 9})
		h.Runs[0].EndedAt = 0
		h.Runs[0].Ended = false
		h.again(kill, 17, 18)
		h.Calls[len(h.Calls)-1].Signal = 10
	}},

	{"an exec is started in a dead container", "Refused", "start of c1 (life 1), exec e2", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: Target{"c1", 1, "e2"}, Began: 31, Ended: 32, Op: OpStart, Pid: 13})
	}},
	{"a fresh exec id that exists", "Refused", "nobody has added it", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: Target{"c1", 1, "e2"}, Began: 17, Ended: 18, Op: OpExec, Code: AlreadyExists})
	}},
	{"a fresh id that exists", "Refused", "nobody has created it", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: Target{"c2", 1, ""}, Began: 17, Ended: 18, Op: OpCreate, Code: AlreadyExists})
	}},
	{"a running container that cannot be paused", "Refused", "it has not ended", func(h *History) {
		h.alive()
		h.Calls = append(h.Calls, Call{Target: c1, Began: 40, Ended: 41, Op: OpPause, Code: FailedPrecondition})
	}},
	{"a running container that cannot be killed", "Refused", "it has not ended", func(h *History) {
		h.alive()
		h.Calls = append(h.Calls, Call{Target: c1, Began: 40, Ended: 41, Op: OpKill, Code: NotFound})
	}},

	{"a refused pause in a life that goes on, and ends", "Refused", "it lived: kill of c1", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: c1, Began: 17, Ended: 18, Op: OpPause, Code: FailedPrecondition})
	}},
	{"a refused update in a life that goes on, and ends", "Refused", "the runtime says at tick 21", func(h *History) {
		h.Calls = append(slices.Delete(h.Calls, kill, kill+1), Call{Target: c1, Began: 17, Ended: 18, Op: OpUpdate, Code: FailedPrecondition})
		h.Looks = append(h.Looks, Look{Target: c1, Began: 21, Ended: 22, State: Running, Runtime: Running, Pid: 10})
	}},
	{"a refused kill in a life that goes on, and ends", "Refused", "it lived: kill of c1", func(h *History) {
		h.Calls = append(h.Calls, Call{Target: c1, Began: 17, Ended: 18, Op: OpKill, Signal: 1, Code: NotFound})
	}},

	{"a replay with another answer", "OneAnswer", "request 8", func(h *History) { h.Calls[delAgain].Status = 0 }},
	{"a replay that fails", "OneAnswer", "request 8", func(h *History) { h.Calls[delAgain].Code = NotFound }},

	{"user code runs twice", "StartedOnce", "2 times", func(h *History) { h.Runs[1].Starts = 2 }},
	{"user code does not run", "StartedOnce", "never started", func(h *History) { h.Runs[1].Starts = 0 }},
	{"user code runs unasked", "StartedOnce", "nobody has asked", func(h *History) {
		h.Runs = append(h.Runs, Run{Target: Target{"c1", 1, "e2"}, Starts: 1})
	}},

	{"user code runs although its start was refused", "StartedOnce", "each start was refused", func(h *History) {
		h.refuseExec()
	}},

	{"an invented status", "OneExit", "truly ended with [137]", func(h *History) { h.Runs[0].Statuses = []uint32{7}; h.Runs[0].Statuses[0] = 137; h.allSay(0) }},
	{"unknown although it is known", "OneExit", "truly ended with [137]", func(h *History) { h.allSay(UnknownStatus) }},
	{"unknown is told as 0", "OneExit", "truly ended with [137]", func(h *History) { h.Runs[0].Unknowable = true; h.allSay(0) }},
	{"Wait and Delete disagree", "OneExit", "two ends", func(h *History) { h.Calls[wait].Status = 0 }},
	{"the event has another time", "OneExit", "two ends", func(h *History) { h.Events[exit].ExitedAt = initEnd.Add(1) }},
	{"a duplicate that differs", "OneExit", "two forms", func(h *History) { h.Events[execExitAgain].Raw = "X2" }},
	{"two deletes that differ", "OneExit", "two forms", func(h *History) {
		h.Events = append(h.Events, h.Events[deleted])
		h.Events[deleted+1].Raw = "D2"
	}},

	{"the start before the create", "EventOrder", "before the create", func(h *History) { h.swap(created, started) }},
	{"an exec's start before the init's", "EventOrder", "before the start", func(h *History) { h.move(started, execStarted) }},
	{"an exec that starts before it is added", "EventOrder", "before it was added", func(h *History) { h.swap(added, execStarted) }},
	{"an exec that starts after its exit", "EventOrder", "after its exit", func(h *History) { h.move(execStarted, execExit) }},
	{"the init's exit before an exec's", "EventOrder", "before the exit of exec e1", func(h *History) {
		h.Events = slices.Delete(h.Events, execExit, execExit+1)
		h.swap(execExit, exit-1)
	}},
	{"the delete before the exit", "EventOrder", "after event delete", func(h *History) { h.swap(exit, deleted) }},
	{"resumed before paused", "EventOrder", "not paused", func(h *History) { h.swap(paused, resumed) }},
	{"paused twice", "EventOrder", "not running", func(h *History) {
		e := h.Events[paused]
		e.Time = ended
		h.Events = slices.Insert(h.Events, paused+1, e)
	}},
	{"an OOM after the exit", "EventOrder", "after event exit", func(h *History) {
		h.Events = slices.Insert(h.Events, deleted, Event{Target: c1, Name: "oom", Raw: "O"})
	}},
	{"an OOM that is not told before its exit", "EventOrder", "want of memory", func(h *History) { h.Runs[1].OOM = true }},
	{"an event after the delete", "EventOrder", "after event delete", func(h *History) { h.move(resumed, deleted) }},
	{"an event again after the delete", "EventOrder", "came again after", func(h *History) { h.Events = append(h.Events, h.Events[exit]) }},
	{"a start again in another form", "EventOrder", "happened before", func(h *History) {
		e := h.Events[started]
		e.Raw = "S2"
		h.Events = slices.Insert(h.Events, added, e)
	}},

	{"a lost exit", "Delivered", "no exit event", func(h *History) { h.Events = slices.Delete(h.Events, exit, exit+1) }},
	{"a lost exit of an exec", "Delivered", "no exit event", func(h *History) { h.Events = slices.Delete(h.Events, execExit, exit) }},
	{"a lost exit nobody has waited for", "Delivered", "it has ended", func(h *History) {
		h.Events = slices.Delete(h.Events, execExit, exit)
		h.Calls[waitExec].Code, h.Calls[deleteExec].Code = Unanswered, Unanswered
	}},
	{"a lost exit of an exec whose start nobody saw answered, but which has run", "Delivered", "it has ended", func(h *History) {
		h.loseExec()
	}},
	{"a lost exit of an exec that only State has seen", "Delivered", "it has ended", func(h *History) {
		h.loseExec()
		h.Runs[1].Starts = NotCounted
		h.Calls = append(h.Calls, Call{Target: e1, Began: 17, Ended: 18, Op: OpState, State: Running, Pid: 11})
	}},
	{"a lost exit of an exec that an event has told of", "Delivered", "it has ended", func(h *History) {
		started := h.Events[execStarted]
		h.loseExec()
		h.Runs[1].Starts = NotCounted
		h.Events = slices.Insert(h.Events, added+1, started)
	}},
	{"a lost delete", "Delivered", "event delete arrived 0 times", func(h *History) { h.Events = h.Events[:deleted] }},
	{"a lost create", "Delivered", "event create arrived 0 times", func(h *History) { h.Events = h.Events[1:] }},
	{"a lost resume", "Delivered", "event resumed arrived 0 times", func(h *History) { h.Events = slices.Delete(h.Events, resumed, resumed+1) }},
	{"a pause nobody has asked for", "Delivered", "asked for 1 times", func(h *History) {
		p, r := h.Events[paused], h.Events[resumed]
		p.Time, r.Time = ended, ended
		h.Events = slices.Insert(h.Events, resumed+1, p, r)
	}},

	{"an exit before the start", "Times", "ended before its exec-started", func(h *History) {
		for _, at := range []*time.Time{&h.Calls[waitExec].ExitedAt, &h.Calls[deleteExec].ExitedAt, &h.Events[execExit].ExitedAt, &h.Events[execExitAgain].ExitedAt} {
			*at = began.Add(-1)
		}
	}},
	{"an exit at no time", "Times", "at no time", func(h *History) { h.Calls[wait].ExitedAt = time.Time{} }},

	{"a lost byte", "Output", "missing", func(h *History) { h.Runs[1].Streams[0].Got = "hell" }},
	{"a byte twice", "Output", "byte 4 differs", func(h *History) { h.Runs[1].Streams[0].Got = "helllo" }},
	{"the end twice", "Output", "too many", func(h *History) { h.Runs[1].Streams[0].Got = "hellohello" }},
	{"a part in the wrong place", "Output", "byte 0 differs", func(h *History) {
		h.Runs[1].Streams[0].Got, h.Runs[1].Streams[0].Partial = "lo", true
	}},

	{"State and runtime differ", "Agreement", `State says "running", the runtime "paused"`, func(h *History) { h.Looks[0].Runtime = Paused }},
	{"the runtime has what was deleted", "Agreement", `State says ""`, func(h *History) {
		h.Looks = append(h.Looks, Look{Target: c1, Began: 40, Ended: 41, Runtime: Stopped})
	}},

	{"a socket is left", "Left", "s.sock", func(h *History) { h.Left = []string{"socket s.sock"} }},
}

// again has a call answered a second time, as a request of its own.
func (h *History) again(i int, began, ended uint64) {
	c := h.Calls[i]
	c.Began, c.Ended = began, ended
	h.Calls = append(h.Calls, c)
}

// alive takes the end of the container back.
func (h *History) alive() {
	h.Calls, h.Events = h.Calls[:kill], h.Events[:exit]
	h.Runs[0].Ended = false
}

// heard has the signals of the init counted: what it was sent, and its end at tick 30.
func (h *History) heard(signals ...Signal) {
	h.Runs[0].Heard, h.Runs[0].Signals, h.Runs[0].EndedAt = true, signals, 30
}

// loseExec has nobody answered, or told, anything of e1 after it was added.
func (h *History) loseExec() {
	for _, i := range []int{startExec, waitExec, deleteExec} {
		h.Calls[i].Code = Unanswered
	}
	h.Events = slices.Delete(h.Events, execExit, execExitAgain+1)
	h.Events = slices.Delete(h.Events, execStarted, execStarted+1)
}

// refuseExec has the start of e1 refused, and its delete answered as that of an exec that has not run.
func (h *History) refuseExec() {
	h.loseExec()
	h.Calls[startExec].Code, h.Calls[startExec].Pid = FailedPrecondition, 0
	h.Calls[waitExec].Code, h.Calls[deleteExec].Code = Unanswered, OK
	h.Calls[deleteExec].Status, h.Calls[deleteExec].ExitedAt, h.Calls[deleteExec].Pid = 0, time.Time{}, 0
}

// allSay has everybody say the same wrong thing of the init's end.
func (h *History) allSay(status uint32) {
	for _, i := range []int{wait, stoppedState, del, delAgain} {
		h.Calls[i].Status = status
	}
	h.Events[exit].Status, h.Events[deleted].Status = status, status
}

func (h *History) swap(i, j int) { h.Events[i], h.Events[j] = h.Events[j], h.Events[i] }

// move takes an event to the place behind another.
func (h *History) move(from, behind int) {
	e := h.Events[from]
	h.Events = slices.Insert(slices.Delete(h.Events, from, from+1), behind, e)
}

func TestWhatIsBadIsFound(t *testing.T) {
	rules := map[string]bool{}
	for _, b := range bad {
		rules[b.rule] = true
		t.Run(b.name, func(t *testing.T) {
			h := good()
			b.spoil(&h)
			var said []string
			for _, err := range Check(h) {
				said = append(said, err.Error())
				if strings.HasPrefix(err.Error(), b.rule+": ") && strings.Contains(err.Error(), b.words) {
					return
				}
			}
			t.Errorf("%s does not say %q; what is said:\n%s", b.rule, b.words, strings.Join(said, "\n"))
		})
	}
	for _, rule := range Rules() {
		if !rules[rule.Name] {
			t.Errorf("no bad history is there for %s", rule.Name)
		}
	}
}
