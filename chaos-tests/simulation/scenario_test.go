//go:build crashpoints

package simulation

import (
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/checker"
)

// scenario is one operation in the state that it needs. prepare is done without a crash; what operate asks for is what
// the worker is killed over, until it is answered.
type scenario struct {
	name    string
	prepare func(w *world)
	operate func(w *world)
	// failing scenarios may have their operation's runtime call fail; in the others the client would not know what to make
	// of it.
	faults []string
}

var anyFault = []string{runtimeFails, runtimeKilled, publishFails}

var scenarios = []scenario{
	{"create", func(*world) {}, func(w *world) { w.create("c") }, append(anyFault, strangerDies)},
	{"start", created, func(w *world) { w.begin("c", "") }, anyFault},
	{"exec-add", running, func(w *world) { w.add1("c", "x") }, nil},
	{"exec-start", withExec, func(w *world) { w.begin("c", "x") }, append(anyFault, strangerDies)},
	{"exec-kill", running, func(w *world) { w.kill("c", victim, 9, false) }, nil},
	{"exec-delete", withDeadExec, func(w *world) { w.del("c", victim) }, nil},
	{"kill", running, func(w *world) { w.kill("c", "", 15, false) }, []string{runtimeFails, runtimeKilled}},
	{"kill-9", running, func(w *world) { w.kill("c", "", 9, false) }, []string{runtimeKilled}},
	{"kill-all", running, func(w *world) { w.kill("c", "", 9, true) }, nil},
	{"pause", running, func(w *world) { w.pause("c") }, anyFault},
	{"resume", paused, func(w *world) { w.resume("c") }, anyFault},
	{"update", running, func(w *world) { w.update("c") }, anyFault},
	{"checkpoint", running, func(w *world) { w.checkpoint("c", w.image(), false) }, anyFault},
	{"checkpoint-exit", running, func(w *world) { w.checkpoint("c", w.image(), true) }, nil},
	{"restore", restorable, func(w *world) { w.begin("c", "") }, anyFault},
	{"close-io", running, func(w *world) { w.closeIO("c", ""); w.closeIO("c", victim) }, nil},
	{"delete", stopped, func(w *world) { w.del("c", "") }, []string{publishFails}},
	{"delete-created", created, func(w *world) { w.del("c", "") }, []string{runtimeFails, publishFails}},
	{"reads", running, reads, nil},
	{"exits", running, func(w *world) { w.happen(execExits); w.happen(initExits) }, []string{publishFails}},
	{"oom", running, func(w *world) { w.happen(oomKills) }, []string{publishFails}},
	{"oom-init", started, func(w *world) { w.happen(oomKills) }, nil},
	{"shutdown", deleted, func(w *world) { w.shutdown("c") }, nil},
	{"again", deleted, func(w *world) { w.create("c") }, []string{publishFails}},
	{"two-starts", withTwoExecs, func(w *world) { w.begin("c", "x"); w.begin("c", "y") }, nil},
	{"start-and-kill", withExec, func(w *world) { w.begin("c", "x"); w.kill("c", "", 9, false) }, nil},
	{"kill-and-delete", running, func(w *world) { w.kill("c", "", 9, false); w.del("c", victim) }, nil},
}

func created(w *world) {
	w.create("c")
	w.answers()
	w.wait("c", "")
}

func started(w *world) {
	created(w)
	w.begin("c", "")
	w.answers()
}

// running has the exec v as well, and somebody who waits for it.
func running(w *world) {
	started(w)
	w.add1("c", victim)
	w.answers()
	w.begin("c", victim)
	w.answers()
	w.wait("c", victim)
	w.settle()
}

func withExec(w *world) {
	running(w)
	w.add1("c", "x")
	w.answers()
}

func withTwoExecs(w *world) {
	withExec(w)
	w.add1("c", "y")
	w.answers()
}

func withDeadExec(w *world) {
	running(w)
	w.happen(execExits)
	w.settle()
}

func paused(w *world) {
	running(w)
	w.pause("c")
	w.answers()
}

func stopped(w *world) {
	started(w)
	w.happen(initExits)
	w.settle()
}

func deleted(w *world) {
	stopped(w)
	w.del("c", "")
	w.answers()
}

func restorable(w *world) {
	w.restore("c", w.image())
	w.answers()
}

func reads(w *world) {
	w.state("c", "")
	w.state("c", victim)
	w.pids("c")
	w.connect("c")
	w.wait("c", "")
	w.wait("c", victim)
}

// image is where images are; the directory is there, beside the bundles.
func (w *world) image() string { return filepath.Dir(w.dir) }

// answers lets the world go on until every call but Wait is answered.
func (w *world) answers() {
	w.until("every call is answered", func() bool {
		return !slices.ContainsFunc(w.asked, func(a *asked) bool { return !a.answered && a.call.Op != checker.OpWait })
	})
}

// live runs one case from its beginning to its end, and returns what must not be.
func (w *world) live(s scenario) []string {
	w.start()
	s.prepare(w)
	w.settle()
	w.environment(before)
	w.settleSometimes()
	w.arm()
	s.operate(w)
	w.answers()
	w.settle()
	if w.known {
		return nil
	}
	w.counted = false
	w.environment(after)
	w.finish()
	return w.judge()
}

// settleSometimes lets the consequences of what has just happened be through when the operation begins, or has both
// go on beside each other, as the plan says.
func (w *world) settleSometimes() {
	if !w.plan.Reverse {
		w.settle()
	}
}

// finish ends what is there as a client would.
func (w *world) finish() {
	w.settle()
	if w.faults.any() {
		w.pass(5 * time.Second) // what has failed is tried again
	}
	w.look("c")
	for _, id := range w.ids() {
		if w.gone[id] || !w.exists(id) {
			continue
		}
		w.kill(id, "", int(unix.SIGKILL), false)
		w.answers()
		if w.machine.of(checker.Target{Container: id, Life: w.lives[id]}) != nil || w.hasRun(id) {
			end := w.wait(id, "")
			w.until("the end of "+id+" is told", func() bool { return end.answered })
		}
		for _, t := range w.targets {
			if t.Container == id && t.Exec != "" && t.Life == w.lives[id] {
				w.state(id, t.Exec)
				w.del(id, t.Exec)
			}
		}
		w.answers()
		w.state(id, "")
		w.answers()
		w.del(id, "")
		w.answers()
	}
	w.pass(time.Minute)
	if !w.keeper.gone {
		w.shutdown("c")
		w.until("the keeper has left", func() bool { return w.keeper.gone })
	}
	w.settle()
	w.stop()
}

// exists says whether a create of this life was answered ok.
func (w *world) exists(id string) bool {
	return slices.ContainsFunc(w.history.Calls, func(c checker.Call) bool {
		return c.Op == checker.OpCreate && c.Container == id && c.Life == w.lives[id] && c.Code == checker.OK
	})
}

// hasRun says whether there ever was an init in this life.
func (w *world) hasRun(id string) bool {
	return slices.ContainsFunc(w.machine.processes, func(p *process) bool {
		return p.target == checker.Target{Container: id, Life: w.lives[id]}
	})
}

// look compares what State says with the runtime.
func (w *world) look(id string) {
	l := checker.Look{Target: checker.Target{Container: id, Life: w.lives[id]}, Began: w.now()}
	if c := w.machine.containers[id]; c != nil {
		l.Runtime, l.Pid = c.status(), c.init.pid
	}
	if !w.exists(id) || w.machine.containers[id] == nil {
		return
	}
	a := w.state(id, "")
	w.answers()
	l.State, l.Ended = a.call.State, w.now()
	w.history.Looks = append(w.history.Looks, l)
}

// stop ends the last worker, which has nothing left to do.
func (w *world) stop() {
	if w.alive() {
		w.counted = false
		w.keeper.gone = true
		w.crash(nil)
	}
}

// judge checks what was seen.
func (w *world) judge() []string {
	w.history.Over = true
	w.history.Left = w.left()
	w.history.Runs = w.runs()
	for _, a := range w.asked {
		if !a.answered {
			a.call.Code, a.call.Ended = checker.Unanswered, w.now()
			w.history.Calls = append(w.history.Calls, a.call)
		}
	}
	wrong := slices.Clone(w.broken)
	kept := w.history.Calls[:0:0]
	for _, c := range w.history.Calls {
		if c.Op != "shutdown" {
			kept = append(kept, c)
		}
	}
	w.history.Calls = kept
	for _, err := range checker.Check(w.history) {
		wrong = append(wrong, err.Error())
	}
	return wrong
}

// runs is the truth about every process.
func (w *world) runs() []checker.Run {
	var runs []checker.Run
	for _, p := range w.machine.processes {
		i := slices.IndexFunc(runs, func(r checker.Run) bool { return r.Target == p.target })
		if i < 0 {
			i = len(runs)
			runs = append(runs, checker.Run{Target: p.target})
		}
		r := &runs[i]
		r.Starts += p.starts
		r.Pid, r.Start, r.Ended, r.OOM = p.pid, p.start, p.ended, p.oom && p.container.cgroup.watched // of a create that was undone, the last one counts
		r.Heard, r.Signals, r.EndedAt = true, append(r.Signals, p.signals...), p.endedAt
		r.Statuses = nil
		if p.ended {
			r.Statuses = []uint32{p.status}
		}
	}
	return runs
}

func (w *world) ids() []string {
	var ids []string
	for _, t := range w.targets {
		if !slices.Contains(ids, t.Container) {
			ids = append(ids, t.Container)
		}
	}
	return ids
}

func (w *world) target(t checker.Target) {
	if !slices.Contains(w.targets, t) {
		w.targets = append(w.targets, t)
	}
}
