package recovery

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"perdure/store/lifecycle"
)

var update = flag.Bool("update", false, "write the generated table into docs/recovery.md")

const document = "../docs/recovery.md"

// cells enumerates every observation of an intent of op, and its verdict.
func cells(op lifecycle.Op, exec string) map[Observation]Verdict {
	all := map[Observation]Verdict{}
	for _, launched := range []bool{false, true} {
		for _, status := range []string{"", "created", "running", "paused", "stopped"} {
			for _, pid := range []int{0, 42} {
				for _, unstarted := range []bool{false, true} {
					for _, failure := range []string{"", "no such file"} {
						for _, ran := range []bool{false, true} {
							for _, restores := range []bool{false, true} {
								for _, dumped := range []bool{false, true} {
									o := Observation{launched, ran, status, pid, unstarted, failure, dumped, restores}
									all[o] = Judge(op, exec, o)
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// TestEveryCell states the rules a second time, from what may not happen.
func TestEveryCell(t *testing.T) {
	for o, v := range cells(lifecycle.OpCreate, "") {
		known := o.Status != ""
		if finished := v == Finish; finished != (known && o.PidFile != 0) {
			t.Errorf("create %+v: %s: it is complete exactly when the runtime knows it and has written its pid", o, v)
		}
		if v == Lost || v == Fail && (known || o.Failure == "") {
			t.Errorf("create %+v: %s: a create can be made again unless the runtime has failed it", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpStart, "") {
		if o.Restores {
			if want := Judge(lifecycle.OpStart, "e", o); v != want {
				t.Errorf("start of a restored init %+v: %s; it is brought up like an exec: %s", o, v, want)
			}
			continue
		}
		ran := o.Status == "running" || o.Status == "paused" || o.Status == "stopped"
		if v == Finish && (!o.Launched || o.Unstarted || !ran) {
			t.Errorf("start %+v: %s: the init has not gone on to user code", o, v)
		}
		if v == Undo && o.Launched && ran && !o.Unstarted {
			t.Errorf("start %+v: %s: user code runs; it must be recorded", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpStart, "e") {
		if v == Undo && o.Launched && o.Ran {
			t.Errorf("start of an exec %+v: %s: user code may have run and would run twice", o, v)
		}
		if !(o.Launched && o.Ran) && v != Undo {
			t.Errorf("start of an exec %+v: %s: nothing was forked", o, v)
		}
		if o.Launched && o.Ran && o.PidFile != 0 && v != Finish {
			t.Errorf("start of an exec %+v: %s: its pid is known", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpDelete, "") {
		if v != Undo {
			t.Errorf("delete %+v: %s: want undo", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpPause, "") {
		if (v == Finish) != (o.Status == "paused") || v != Finish && v != Undo {
			t.Errorf("pause %+v: %s: the freezer tells", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpResume, "") {
		if (v == Finish) != (o.Status == "running") || v != Finish && v != Undo {
			t.Errorf("resume %+v: %s: the freezer tells", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpCheckpoint, "") {
		gone := o.Status == "stopped" || o.Status == ""
		switch {
		case v == Undo && o.Ran && gone && o.Dumped && o.Failure == "":
			t.Errorf("checkpoint %+v: %s: there is nothing left to dump again", o, v)
		case v == Finish && (o.Failure != "" || !gone || !o.Ran || !o.Dumped):
			t.Errorf("checkpoint %+v: %s: no image is known to be complete", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpUpdate, "") {
		if v != Undo {
			t.Errorf("update %+v: %s: the same limits can be set again", o, v)
		}
	}
	for o, v := range cells(lifecycle.OpKill, "") {
		if v != Repeat {
			t.Errorf("kill %+v: %s: a signal that was asked for is sent at least once", o, v)
		}
	}
}

// TestTable keeps the table in docs/recovery.md equal to the code.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "-update -->\n")
	_, tail, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 {
		t.Fatalf("%s: the markers of the generated table are missing", document)
	}
	want := head + "-update -->\n" + table() + "<!-- end -->" + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the code: run go test ./recovery -run TestTable -update", document)
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("| intent | observed | verdict |\n|---|---|---|\n")
	row := func(op, observed string, v Verdict) { fmt.Fprintf(&b, "| %s | %s | %s |\n", op, observed, v) }
	row("create", "the runtime knows it, its pid is written", Judge(lifecycle.OpCreate, "", Observation{Status: "created", PidFile: 1}))
	row("create", "the runtime does not know it, and said why it failed", Judge(lifecycle.OpCreate, "", Observation{Failure: "x"}))
	row("create", "the runtime does not know it, and said nothing", Judge(lifecycle.OpCreate, "", Observation{PidFile: 1}))
	row("create", "no pid is written", Judge(lifecycle.OpCreate, "", Observation{Status: "created"}))
	row("start of init", "it has left the exec fifo: running, paused or stopped", Judge(lifecycle.OpStart, "", Observation{Launched: true, Status: "running"}))
	row("start of init", "it still waits at the exec fifo, alive or not", Judge(lifecycle.OpStart, "", Observation{Launched: true, Status: "created", Unstarted: true}))
	row("start of an exec", "not launched: no runtime was forked", Judge(lifecycle.OpStart, "e", Observation{}))
	ran := Observation{Launched: true, Ran: true}
	row("start of an exec", "launched, but the runtime was never executed", Judge(lifecycle.OpStart, "e", Observation{Launched: true}))
	row("start of an exec", "the runtime ran, its pid is written", Judge(lifecycle.OpStart, "e", with(ran, func(o *Observation) { o.PidFile = 1 })))
	row("start of an exec", "the runtime ran, no pid, it said why it failed", Judge(lifecycle.OpStart, "e", with(ran, func(o *Observation) { o.Failure = "x" })))
	row("start of an exec", "the runtime ran, no pid, it said nothing", Judge(lifecycle.OpStart, "e", ran))
	row("start of a restored init", "as of an exec", Judge(lifecycle.OpStart, "", with(ran, func(o *Observation) { o.Restores, o.PidFile = true, 1 })))
	row("pause", "the runtime says paused", Judge(lifecycle.OpPause, "", Observation{Status: "paused"}))
	row("pause", "anything else; what is half frozen is thawed", Judge(lifecycle.OpPause, "", Observation{Status: "running"}))
	row("resume", "the runtime says running", Judge(lifecycle.OpResume, "", Observation{Status: "running"}))
	row("resume", "anything else", Judge(lifecycle.OpResume, "", Observation{Status: "paused"}))
	row("update", "anything", Judge(lifecycle.OpUpdate, "", Observation{}))
	row("checkpoint", "the runtime said why it failed", Judge(lifecycle.OpCheckpoint, "", with(ran, func(o *Observation) { o.Failure = "x" })))
	row("checkpoint", "the container is gone, and its image is complete", Judge(lifecycle.OpCheckpoint, "", with(ran, func(o *Observation) { o.Status, o.Dumped = "stopped", true })))
	row("checkpoint", "anything else", Judge(lifecycle.OpCheckpoint, "", Observation{Status: "running"}))
	row("kill", "anything", Judge(lifecycle.OpKill, "", Observation{}))
	row("delete", "anything", Judge(lifecycle.OpDelete, "", Observation{}))
	return b.String()
}

func with(o Observation, change func(*Observation)) Observation {
	change(&o)
	return o
}

// TestOnlyWhoNeedsItAsks: the verdict on an operation that does not ask the runtime is the same whatever it would say.
func TestOnlyWhoNeedsItAsks(t *testing.T) {
	for _, op := range lifecycle.Commands() {
		if asksRuntime[op] {
			continue
		}
		for o, v := range cells(op, "") {
			silent := o
			silent.Status = ""
			if other := Judge(op, "", silent); other != v {
				t.Errorf("%s %+v: %s, without the runtime's word %s", op, o, v, other)
			}
		}
	}
}
