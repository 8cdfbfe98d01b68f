package task

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/proto"

	"perdure/store"
	"perdure/store/lifecycle"
)

// limit bounds every wait; what is awaited takes milliseconds.
const limit = 20 * time.Second

// clerk is a keeper that notes what it is told of exits, and has nothing stored.
type clerk struct {
	Keeper
	mu      sync.Mutex
	acked   []uint64
	holding []bool
	watched []lifecycle.Process
	onAck   func(seq uint64)
}

func (k *clerk) Acknowledge(seq uint64) {
	k.mu.Lock()
	k.acked = append(k.acked, seq)
	k.mu.Unlock()
	if k.onAck != nil {
		k.onAck(seq)
	}
}

func (k *clerk) Hold(on bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holding = append(k.holding, on)
}

func (k *clerk) Watch(pid int, start uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watched = append(k.watched, lifecycle.Process{Pid: pid, Start: start})
}

func (k *clerk) Fetch(string) (*os.File, error) { return nil, os.ErrNotExist }

func (k *clerk) acknowledged() []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.acked)
}

// stage is a container with a journal, whose processes are records only.
type stage struct {
	*container
	t *testing.T
}

func newStage(t *testing.T, keeper Keeper, publisher Publisher) *stage {
	t.Helper()
	return newStageOn(t, NewMachine(), keeper, publisher)
}

func newStageOn(t *testing.T, machine Machine, keeper Keeper, publisher Publisher) *stage {
	t.Helper()
	bundle := t.TempDir()
	journal, err := store.Create(bundle, store.Meta{Namespace: "ns", ID: "web", Bundle: bundle})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Keeper: keeper, Publisher: publisher, Machine: machine, Now: time.Now})
	c := newContainer(s, journal, createParams{PrivatePIDNamespace: true})
	t.Cleanup(c.close)
	return &stage{c, t}
}

func (s *stage) record(records ...lifecycle.Record) uint64 {
	s.t.Helper()
	var written []lifecycle.Record
	var err error
	s.do(func() { written, err = s.commit(nil, records...) })
	if err != nil {
		s.t.Fatal(err)
	}
	return written[len(written)-1].Seq
}

func (s *stage) done(op lifecycle.Op, exec string, p *lifecycle.Process) {
	s.t.Helper()
	intent := s.record(lifecycle.Record{Op: op, Exec: exec, Phase: lifecycle.Intent})
	s.record(lifecycle.Record{Op: op, Exec: exec, Phase: lifecycle.Done, Intent: intent, Process: p, At: began})
}

var (
	began = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	init1 = lifecycle.Process{Pid: 10, Start: 1}
	exec1 = lifecycle.Process{Pid: 11, Start: 2}
)

// running has an init and an exec "e" that run.
func (s *stage) running() *stage {
	s.t.Helper()
	s.done(lifecycle.OpCreate, "", &init1)
	s.done(lifecycle.OpStart, "", nil)
	s.record(lifecycle.Record{Op: lifecycle.OpExec, Exec: "e", Phase: lifecycle.Done})
	s.done(lifecycle.OpStart, "e", &exec1)
	s.svc.exits.claim(s.container, "", init1)
	s.svc.exits.claim(s.container, "e", exec1)
	return s
}

// exit lets an exit arrive and waits until the keeper need not have it any more.
func (s *stage) exit(k *clerk, e Exit) {
	s.t.Helper()
	acked := make(chan struct{})
	k.onAck = func(seq uint64) {
		if seq == e.Seq {
			close(acked)
		}
	}
	s.svc.Exited(e)
	select {
	case <-acked:
	case <-time.After(limit):
		s.t.Fatalf("waited for exit %d to be acknowledged", e.Seq)
	}
}

func exited(seq uint64, p lifecycle.Process, status int, at time.Time) Exit {
	return Exit{Seq: seq, Pid: p.Pid, Start: p.Start, Status: syscall.WaitStatus(status), At: at}
}

// TestAStrangersExitIsNobodys: a pid is used again; only with its start time does it say which process has ended.
func TestAStrangersExitIsNobodys(t *testing.T) {
	k := &clerk{}
	s := newStage(t, k, silent{}).running()
	s.exit(k, exited(1, lifecycle.Process{Pid: init1.Pid, Start: 99}, 0, began))
	if p := s.state().Init; p.Exit != nil {
		t.Errorf("a stranger has ended the init: %+v", *p.Exit)
	}
	s.exit(k, exited(2, lifecycle.Process{Pid: init1.Pid}, 0, began)) // the keeper could not read its start time: it had the pid
	if s.state().Init.Exit == nil {
		t.Error("the init has not ended")
	}
}

// TestAnEarlyExitIsHeld: as long as a process may come up whose pid is not known, no exit that came since is
// nobody's, and the keeper drops none.
func TestAnEarlyExitIsHeld(t *testing.T) {
	k := &clerk{}
	x := newExits(k)
	before := x.opened()
	x.arrive(exited(1, exec1, 0, began))
	after := x.opened()
	if len(k.acknowledged()) != 0 {
		t.Fatal("an exit is acknowledged that may be that of a process which is coming up")
	}
	before()
	if !slices.Equal(k.acknowledged(), []uint64{1}) {
		t.Errorf("acknowledged %v; a command that began after an exit does not hold it", k.acked)
	}
	after()
	if !slices.Equal(k.holding, []bool{true, false}) {
		t.Errorf("the keeper was told to hold: %v; want once, from the first command to the end of the last", k.holding)
	}
}

// TestAProcessIsWatched: the keeper is told, by pid and start time, whose exit must not be dropped.
func TestAProcessIsWatched(t *testing.T) {
	k := &clerk{}
	newStage(t, k, silent{}).running()
	if want := []lifecycle.Process{init1, exec1}; !slices.Equal(k.watched, want) {
		t.Errorf("watched %v, want %v", k.watched, want)
	}
}

// TestAnExitIsJournaledBeforeItIsAcknowledged, with the status and time that the keeper has reaped.
func TestAnExitIsJournaledBeforeItIsAcknowledged(t *testing.T) {
	const killed, three = int(syscall.SIGKILL), 3 << 8 // wait(2): a signal, an exit code
	later := began.Add(time.Hour)
	for name, c := range map[string]struct {
		wait   int
		at     time.Time
		status uint32
		want   time.Time
	}{
		"a code":             {three, later, 3, later},
		"a signal":           {killed, later, 137, later},
		"before start is up": {three, began.Add(-time.Millisecond), 3, began},
	} {
		t.Run(name, func(t *testing.T) {
			k := &clerk{}
			s := newStage(t, k, silent{}).running()
			journaled := make(chan lifecycle.Exit, 1)
			e := exited(1, exec1, c.wait, c.at)
			k.onAck = func(uint64) {
				if p := s.journal.State().Process("e"); p.Exit != nil {
					journaled <- *p.Exit
				}
				close(journaled)
			}
			s.svc.Exited(e)
			exit, ok := <-journaled
			if !ok {
				t.Fatal("it was acknowledged before it was journaled")
			}
			if exit.Status != c.status || !exit.At.Equal(c.want) || exit.Source != lifecycle.Reaped {
				t.Errorf("%+v; want %d at %s, reaped", exit, c.status, c.want)
			}
		})
	}
}

// TestAnExitThatCannotBeJournaledStaysWithTheKeeper.
func TestAnExitThatCannotBeJournaledStaysWithTheKeeper(t *testing.T) {
	k := &clerk{}
	s := newStage(t, k, silent{}).running()
	s.outbox.stop()
	if err := s.journal.Close(); err != nil {
		t.Fatal(err)
	}
	e := exited(1, exec1, 0, began)
	s.inbox.put(arrival{e, exec1, "e"})
	s.takeExits()
	if len(k.acknowledged()) != 0 || len(s.inbox.list()) != 1 {
		t.Errorf("acknowledged %v, waiting %v", k.acked, s.inbox.list())
	}
}

// scribe notes the exit events in the order in which they come.
type scribe struct{ heard chan *events.TaskExit }

func (p scribe) Publish(_ context.Context, _ string, e store.Event) error {
	if e.Topic != topicExit {
		return nil
	}
	var exit events.TaskExit
	if err := proto.Unmarshal(e.Value, &exit); err != nil {
		return err
	}
	p.heard <- &exit
	return nil
}

// TestTheExitOfInitIsToldAfterItsExecs: held until then, and told then; until then the task is running.
func TestTheExitOfInitIsToldAfterItsExecs(t *testing.T) {
	k, heard := &clerk{}, scribe{make(chan *events.TaskExit, 4)}
	s := newStage(t, k, heard).running()
	s.exit(k, exited(1, init1, 0, began))
	if status := s.state().status("", s.state().Init); status != task.Status_RUNNING {
		t.Errorf("with a live exec the task is %s", status)
	}
	s.exit(k, exited(2, exec1, 0, began))
	if status := s.state().status("", s.state().Init); status != task.Status_STOPPED {
		t.Errorf("at last the task is %s", status)
	}
	for _, want := range []string{"e", "web"} {
		select {
		case e := <-heard.heard:
			if e.ID != want {
				t.Errorf("the exit of %s is told, want that of %s", e.ID, want)
			}
		case <-time.After(limit):
			t.Fatalf("waited for the exit of %s to be told", want)
		}
	}
}

// absent is a containerd that is away for the first few attempts. It notes whether each event was still in the outbox when
// it came.
type absent struct {
	journal func() *store.Journal
	fails   int
	heard   chan store.Event
	missing chan string
}

func (p *absent) Publish(_ context.Context, _ string, e store.Event) error {
	rows, err := p.journal().Outbox()
	if err != nil || len(rows) == 0 || rows[0].Topic != e.Topic {
		p.missing <- e.Topic
	}
	if p.fails--; p.fails >= 0 {
		return errors.New("connection refused")
	}
	p.heard <- e
	return nil
}

// TestAnEventStaysUntilItHasArrived: a row leaves the outbox after containerd has taken it, and the next one waits for
// that, however often it takes.
func TestAnEventStaysUntilItHasArrived(t *testing.T) {
	var s *stage
	ready := make(chan struct{})
	p := &absent{fails: 3, heard: make(chan store.Event, 4), missing: make(chan string, 16)}
	p.journal = func() *store.Journal { <-ready; return s.journal }
	s = newStage(t, &clerk{}, p)
	close(ready)
	var err error
	s.do(func() { _, err = s.commit([]store.Event{{Topic: "first"}, {Topic: "second"}}) })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} {
		select {
		case e := <-p.heard:
			if e.Topic != want {
				t.Errorf("%s has arrived, want %s", e.Topic, want)
			}
		case <-time.After(limit):
			t.Fatalf("waited for %s", want)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.outbox.drained(ctx); err != nil {
		t.Errorf("an event that has arrived stays in the outbox: %v", err)
	}
	select {
	case topic := <-p.missing:
		t.Errorf("%s was removed before it had arrived", topic)
	default:
	}
}
