package real

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want checker.Code
	}{
		{nil, checker.OK},
		{fmt.Errorf("task: %w", errdefs.ErrNotFound), checker.NotFound},
		{errdefs.ErrAlreadyExists, checker.AlreadyExists},
		{errdefs.ErrFailedPrecondition, checker.FailedPrecondition},
		{errors.New("ttrpc: closed"), checker.Unanswered},
	} {
		if got := Code(c.err); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

func TestLivesOfEvents(t *testing.T) {
	event := func(name string, pid uint32) harness.Event {
		return harness.Event{Name: name, Container: "c", Pid: pid}.WithPayload(fmt.Sprint(name, pid))
	}
	recorded := []harness.Event{
		event("create", 1), event("exit", 1), event("delete", 1), event("exit", 1), // containerd has told it again
		event("create", 2), event("delete", 2),
	}
	want := []int{1, 1, 1, 1, 2, 2}
	for i, e := range Events(recorded, 10) {
		if e.Life != want[i] || e.At != uint64(10+i) {
			t.Errorf("event %d is of life %d at %d, want life %d at %d", i, e.Life, e.At, want[i], 10+i)
		}
	}
}
