package lifecycle

import (
	"errors"
	"slices"
	"testing"
)

// allowed states the rules a second time, operation by operation where table.go goes state by state: the
// states an operation is allowed in, and where it leads ("" = it stays).
var allowed = map[Kind]map[Op]struct {
	from []State
	to   State
}{
	Init: {
		OpCreate:     {[]State{None}, Created},
		OpStart:      {[]State{Created}, Running},
		OpExec:       {[]State{Created, Running}, ""},
		OpPause:      {[]State{Running}, Paused},
		OpResume:     {[]State{Paused}, Running},
		OpKill:       {[]State{Created, Running, Paused}, ""},
		OpUpdate:     {[]State{Created, Running, Paused}, ""},
		OpCheckpoint: {[]State{Running, Paused}, ""},
		OpCloseIO:    {[]State{Created, Running, Paused, Stopped}, ""},
		OpDelete:     {[]State{Created, Stopped}, Deleted},
		OpExit:       {[]State{Created, Running, Paused}, Stopped},
		OpOOM:        {[]State{Created, Running, Paused, Stopped}, ""},
	},
	Exec: {
		OpExec:    {[]State{None}, Created},
		OpStart:   {[]State{Created}, Running},
		OpKill:    {[]State{Running}, ""},
		OpCloseIO: {[]State{Created, Running, Stopped}, ""},
		OpDelete:  {[]State{Created, Stopped}, Deleted},
		OpExit:    {[]State{Created, Running}, Stopped},
	},
}

// forbidden states the reasons a second time, as sentences in the order they count.
func forbidden(kind Kind, from State, op Op) Reason {
	adds := op == OpCreate && kind == Init || op == OpExec && kind == Exec
	gone := from == None || from == Deleted
	if adds { // an id that was used is used
		return Exists
	}
	if gone { // there is nothing to operate on
		return NotFound
	}
	if from == Stopped && op == OpKill { // CRI takes it for success
		return NotFound
	}
	return Precondition
}

func allOps() []Op { return append(Commands(), Observations()...) }

func TestNextEveryCell(t *testing.T) {
	cells := 0
	for _, kind := range []Kind{Init, Exec} {
		for _, from := range States() {
			for _, op := range allOps() {
				cells++
				to, err := Next(kind, from, op)
				rule := allowed[kind][op]
				if slices.Contains(rule.from, from) {
					want := rule.to
					if want == "" {
						want = from
					}
					if err != nil || to != want {
						t.Errorf("%s %s %s: %q, %v; want %q", kind, from, op, to, err, want)
					}
					continue
				}
				var illegal *IllegalError
				if !errors.As(err, &illegal) || to != None {
					t.Errorf("%s %s %s: %q, %v; want it refused", kind, from, op, to, err)
					continue
				}
				if want := (IllegalError{Kind: kind, State: from, Op: op, Reason: forbidden(kind, from, op)}); *illegal != want {
					t.Errorf("%s %s %s: %#v; want %#v", kind, from, op, *illegal, want)
				}
				if illegal.Error() == "" {
					t.Error("an error says nothing")
				}
			}
		}
	}
	if cells != 2*6*12 {
		t.Errorf("%d cells were tested", cells)
	}
}

func TestWordsNobodyKnows(t *testing.T) {
	for _, err := range []error{
		second(Next("pod", Running, OpKill)),
		second(Next(Init, "creating", OpKill)),
		second(Next(Init, Running, "freeze")),
	} {
		var illegal *IllegalError
		if !errors.As(err, &illegal) {
			t.Errorf("%v; want an IllegalError", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
