package lifecycle

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// actor writes random legal histories.
type actor struct {
	*history
	rt      *rapid.T
	request uint64
}

var ids = []string{"", "", "a", "b", "c"}

// step does one thing, if it is legal; what is refused has to be refused by Check as well.
func (a *actor) step() {
	exec := rapid.SampledFrom(ids).Draw(a.rt, "exec")
	switch rapid.IntRange(0, 9).Draw(a.rt, "step") {
	case 0:
		a.begin(rapid.SampledFrom(Commands()).Draw(a.rt, "op"), exec)
	case 1, 2, 3:
		a.begin(rapid.SampledFrom(a.legal(exec)).Draw(a.rt, "legal op"), exec)
	case 4, 5, 6:
		a.end()
	case 7:
		if exec != "" || a.c.Last > 40 || rapid.IntRange(0, 9).Draw(a.rt, "init ends") == 0 {
			a.watch(OpExit, exec)
		}
	case 8:
		a.watch(OpOOM, exec)
	case 9:
		a.stranger(exec)
	}
}

// legal lists what may begin, so that histories go deep; delete seldom, so that they go on.
func (a *actor) legal(exec string) []Op {
	list := []Op{OpKill}
	for _, op := range Commands() {
		if a.c.Check(op, exec) == nil && (op != OpDelete || exec != "" || a.c.Last > 60) {
			list = append(list, op)
		}
	}
	return list
}

func (a *actor) begin(op Op, exec string) {
	r := Record{Op: op, Exec: exec, Phase: Intent}
	if rapid.Bool().Draw(a.rt, "requested") {
		a.request++
		r.Request = a.request
	}
	if (op == OpExec || op == OpCloseIO) && rapid.Bool().Draw(a.rt, "immediate") {
		r.Phase = Done
	}
	want := a.c.Check(op, exec)
	if want != nil && op == OpExec && a.c.Init.State == Stopped {
		return // see follows: the writer asks Check, and a reader cannot know any more
	}
	if err := a.try(r); (err == nil) != (want == nil) {
		a.rt.Fatalf("%s of %q: Check says %v, Apply %v", op, exec, want, err)
	}
	if want != nil && r.Request != 0 && rapid.Bool().Draw(a.rt, "journal the refusal") {
		r.Phase, r.Error = Failed, &Error{"FailedPrecondition", want.Error()}
		a.must(r)
	}
}

func (a *actor) must(r Record) {
	if err := a.try(r); err != nil {
		a.rt.Fatalf("%+v: %v", r, err)
	}
}

// end marks or closes an open intent.
func (a *actor) end() {
	if len(a.c.Open) == 0 {
		return
	}
	seq := rapid.SampledFrom(slices.Sorted(maps.Keys(a.c.Open))).Draw(a.rt, "intent")
	open := a.c.Open[seq]
	phase := rapid.SampledFrom([]Phase{Launched, Done, Done, Done, Failed, Undone}).Draw(a.rt, "phase")
	if phase == Launched && open.Phase == Launched {
		return
	}
	r := Record{Intent: seq, Phase: phase, At: at(int(a.c.Last))}
	if phase == Done && (open.Op == OpCreate || open.Op == OpStart && open.Exec != "") {
		r.Process = &Process{Pid: rapid.IntRange(1, 3).Draw(a.rt, "pid"), Start: a.c.Last}
	}
	if open.Op == OpDelete && open.Exec == "" && phase == Done && a.c.Init.Exit == nil {
		a.watch(OpExit, "")
	}
	a.must(r)
}

func (a *actor) watch(op Op, exec string) {
	p := a.c.Process(exec)
	r := Record{Op: op, Exec: exec, Phase: Observed}
	legal := a.c.Check(op, exec) == nil
	if op == OpExit {
		r.Process, r.Exit = &p.Process, &Exit{Status: 3, At: p.Clamp(t0), Source: Reaped}
		if p.Process == (Process{}) {
			r.Exit.Source = Unknown
			_, starting := a.c.Opened(OpStart, exec)
			legal = legal && !starting
		}
	}
	if op == OpOOM {
		r.OOM = &OOM{Told: p.OOM.Told + 1, Kills: p.OOM.Kills + rapid.Uint64Range(0, 2).Draw(a.rt, "kills")}
		if !legal && a.c.InitExitTold() {
			return // the writer asks Check first
		}
	}
	if err := a.try(r); (err == nil) != legal {
		a.rt.Fatalf("%s of %q: legal %t, Apply %v", op, exec, legal, err)
	}
}

// stranger reports the exit of a process nobody knows.
func (a *actor) stranger(exec string) {
	err := a.try(Record{Op: OpExit, Exec: exec, Phase: Observed, Process: &Process{Pid: 4}, Exit: &Exit{At: at(1 << 20), Source: Reaped}})
	var broken *RecordError
	var illegal *IllegalError
	if !errors.As(err, &broken) && !errors.As(err, &illegal) {
		a.rt.Fatalf("the exit of an unknown process: %v", err)
	}
}

func random(t *testing.T, rt *rapid.T) *actor { return &actor{history: newHistory(t), rt: rt} }

func TestFoldIsApply(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := random(t, rt)
		var old []*Container
		var frozen [][]byte
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			old, frozen = append(old, a.c), append(frozen, dump(rt, a.c))
			a.step()
		}
		folded, err := Fold(a.records)
		if err != nil {
			rt.Fatal(err)
		}
		same(rt, folded, a.c)
		for i, c := range old {
			if string(dump(rt, c)) != string(frozen[i]) {
				rt.Fatalf("container %d was changed after it was published", i)
			}
		}
		ordered(rt, a.records)
	})
}

// TestCompactionPreservesState compacts now and then, and goes on from the compacted journal.
func TestCompactionPreservesState(t *testing.T) {
	removed := 0
	rapid.Check(t, func(rt *rapid.T) {
		a := random(t, rt)
		base := Base{}
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			if rapid.IntRange(0, 7).Draw(rt, "compact") > 0 {
				a.step()
				continue
			}
			a.c = a.c.Forget(rapid.Uint64Range(0, a.request+1).Draw(rt, "oldest"))
			limit := rapid.SampledFrom([]int{0, 3, 10, 1000}).Draw(rt, "limit")
			entries := make([]Entry, len(a.records))
			for i, r := range a.records {
				entries[i] = r.Entry()
			}
			seqs, execs := Garbage(entries, a.c.Forgotten, limit)
			if len(seqs) > limit || !slices.IsSorted(seqs) {
				rt.Fatalf("%d removed, limit %d: %v", len(seqs), limit, seqs)
			}
			removed += len(seqs)
			a.records = slices.DeleteFunc(slices.Clone(a.records), func(r Record) bool { return slices.Contains(seqs, r.Seq) })
			base.DeletedExecs += execs
			base.Forgotten, base.Last = a.c.Forgotten, a.c.Last
			folded, err := Resume(base, a.records)
			if err != nil {
				rt.Fatal(err)
			}
			same(rt, folded, a.c)
		}
	})
	if removed == 0 {
		t.Error("no history had garbage in it")
	}
}

// TestOnlyWhatLivesStays: after deletions and Forget, nothing is left that the state does not need.
func TestOnlyWhatLivesStays(t *testing.T) {
	h := reach(t, Running, None)
	for range 3 {
		h.add(Record{Op: OpExec, Exec: "x", Phase: Done, Request: h.c.Last})
		h.done(OpStart, "x")
		h.done(OpKill, "x")
		h.exit("x")
		h.done(OpDelete, "x")
		h.done(OpPause, "")
		h.done(OpKill, "")
		h.done(OpResume, "")
		h.done(OpUpdate, "")
		h.add(Record{Op: OpOOM, Phase: Observed, OOM: &OOM{Told: h.c.Init.OOM.Told + 1}})
		h.done(OpCloseIO, "")
	}
	entries := make([]Entry, len(h.records))
	for i, r := range h.records {
		entries[i] = r.Entry()
	}
	seqs, execs := Garbage(entries, h.c.Last+1, 1000)
	if left := len(entries) - len(seqs); execs != 3 || left != 4+1+2 { // create, start, oom, close-io
		t.Errorf("%d execs gone, %d records left: removed %v", execs, left, seqs)
	}
	if seqs, execs = Garbage(entries, 0, 1000); execs != 0 {
		t.Errorf("an exec went whose answer is kept: %v", seqs)
	}
}

// TestPauseStaysForWhatItExplains: a record that is legal only in a paused container keeps the pause.
func TestPauseStaysForWhatItExplains(t *testing.T) {
	h := reach(t, Running, None)
	h.done(OpPause, "")
	i := h.add(Record{Op: OpResume, Phase: Intent, Request: 50})
	h.add(Record{Phase: Failed, Intent: i})
	h.done(OpResume, "")
	var entries []Entry
	for _, r := range h.records {
		entries = append(entries, r.Entry())
	}
	if seqs, _ := Garbage(entries, 50, 1000); len(seqs) != 0 {
		t.Errorf("with the failed resume still to be answered: %v", seqs)
	}
	if seqs, _ := Garbage(entries, 51, 1000); len(seqs) != 6 {
		t.Errorf("with nothing to be answered: %v", seqs)
	}
}

func dump(rt *rapid.T, c *Container) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		rt.Fatal(err)
	}
	return b
}

func same(rt *rapid.T, a, b *Container) {
	normal := func(c *Container) Container {
		n := *c
		if len(n.Open) == 0 {
			n.Open = nil
		}
		if len(n.Answers) == 0 {
			n.Answers = nil
		}
		if len(n.Execs) == 0 {
			n.Execs = nil
		}
		return n
	}
	if !reflect.DeepEqual(normal(a), normal(b)) {
		rt.Fatalf("not the same:\n%s\n%s", dump(rt, a), dump(rt, b))
	}
}

// ordered checks the order rules on a whole history, by position alone.
func ordered(rt *rapid.T, records []Record) {
	type life struct{ created, started, exited bool }
	lives := map[string]life{}
	var deleted bool
	for _, r := range records {
		if r.Phase != Done && r.Phase != Observed {
			continue
		}
		l := lives[r.Exec]
		broken := deleted
		switch r.Op {
		case OpCreate, OpExec:
			broken = broken || l.created || r.Op == OpExec && !lives[""].created
			l.created = true
		case OpStart:
			broken = broken || !l.created || r.Exec != "" && !lives[""].started
			l.started = true
		case OpExit:
			broken = broken || !l.created || l.exited
			l.exited = true
		case OpOOM:
			live := !l.exited || !l.started // an exit waits for its start to be told
			for _, other := range lives {
				live = live || other.created && !other.exited // one may be starting
			}
			broken = broken || !live
		case OpDelete:
			broken = broken || !l.created || l.started && !l.exited
			for exec, other := range lives {
				broken = broken || r.Exec == "" && exec != "" && other.started && !other.exited
			}
			deleted, l = r.Exec == "", life{}
		case OpPause, OpResume, OpKill, OpUpdate, OpCheckpoint, OpCloseIO:
			broken = broken || !l.created
		}
		lives[r.Exec] = l
		if broken {
			rt.Fatalf("record %d (%s of %q) breaks the order", r.Seq, r.Op, r.Exec)
		}
	}
}
