// Package keeperdeath holds the tests in which the keeper itself is killed, at each of its crash points, alone, with its
// worker, or while the worker cannot notice. containerd takes that for the shim's death and runs `delete`. What must hold
// then: the container is ended; its status is what is journaled where the process had ended, 137 where `delete` has killed
// a live init, and 255 where nobody can know; nothing is left; the id can be used again; user code has run once.
package keeperdeath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/checker/real"
	"perdure/chaos-tests/harness"
)

const (
	limit     = 20 * time.Second
	testLimit = 10 * time.Minute
)

// stage is a daemon on which keepers die one after the other.
type stage struct {
	h       *harness.Harness
	crashes *harness.Crashes
	tokens  string // directory on the host to which every init and exec adds a line when its user code runs
	count   int
}

func newStage(t *testing.T, env ...string) *stage {
	h, crashes := harness.NewWithCrashes(t, env...)
	return &stage{h: h, crashes: crashes, tokens: t.TempDir()}
}

// scene is one container whose keeper dies.
type scene struct {
	*stage
	t     *testing.T
	id    string
	life  checker.Target
	rec   *real.Recorder
	c     *harness.Container
	stdin *io.PipeWriter // of typed

	keeper, worker int // pids; 0: not there yet
}

// scene makes a fresh id; the container is not there yet.
func (s *stage) scene(t *testing.T) *scene {
	s.count++
	id := fmt.Sprintf("k%d", s.count)
	sc := &scene{stage: s, t: t, id: id, life: checker.Target{Container: id, Life: 1}, rec: real.NewRecorder(s.h)}
	t.Cleanup(sc.clear)
	return sc
}

// clear takes away what a scene that has failed has left, so that the next one is not harmed.
func (s *scene) clear() {
	if !s.t.Failed() {
		return
	}
	ctx := s.h.Within(s.t, limit)
	if err := s.crashes.Arm(); err != nil {
		s.t.Error(err)
	}
	if s.c != nil {
		if err := s.c.Remove(ctx); err != nil {
			s.t.Error(err)
		}
	}
}

// token is shell code that says that a process of this scene runs.
func (s *scene) token(who string) string { return fmt.Sprintf("echo >>/tokens/%s-%s; ", s.id, who) }

// starts is how often a process has run.
func (s *scene) starts(who string) int {
	text, err := os.ReadFile(filepath.Join(s.tokens, s.id+"-"+who))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Error(err)
	}
	return strings.Count(string(text), "\n")
}

// config is a container that says that it runs, and ends with 7 when it is told to by SIGTERM.
func (s *scene) config(terminal bool) harness.Config {
	return harness.Config{
		Args:     harness.Shell(s.token("init") + "trap 'exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done"),
		Terminal: terminal,
		Mounts:   []specs.Mount{{Type: "bind", Source: s.tokens, Destination: "/tokens", Options: []string{"rbind", "rw"}}},
	}
}

// run brings the container up, and takes note of who serves it.
func (s *scene) run(ctx context.Context, terminal bool) {
	s.t.Helper()
	c, err := s.rec.Create(ctx, s.life, s.config(terminal))
	harness.Check(s.t, err)
	s.c = c
	harness.Check(s.t, s.rec.Start(ctx, s.life, c))
	harness.Check(s.t, c.Stdout.Await(limit, "ready"))
	s.served(ctx)
}

func (s *scene) served(ctx context.Context) {
	s.t.Helper()
	var err error
	s.keeper, err = s.c.Keeper()
	harness.Check(s.t, err)
	s.worker, err = s.c.Worker(ctx)
	harness.Check(s.t, err)
}

// arm has the keeper die at a point from now on.
func (s *scene) arm(point string) {
	s.t.Helper()
	s.rec.Dying(s.life)
	harness.Check(s.t, s.crashes.Arm(point))
}

// forgotten waits until containerd has found the shim dead and has removed the task.
func (s *scene) forgotten(ctx context.Context) {
	s.t.Helper()
	harness.Eventually(s.t, limit, "containerd to forget "+s.id, func() error {
		list, err := s.h.Client().TaskService().List(ctx, &tasks.ListTasksRequest{})
		if err != nil {
			return err
		}
		for _, task := range list.Tasks {
			if task.ID == s.id {
				return fmt.Errorf("it is %v", task.Status)
			}
		}
		return nil
	})
}

// truth is what the init can have ended with.
type truth struct {
	statuses   []uint32
	unknowable bool // 255 is true as well
}

var (
	killedByDelete = truth{statuses: []uint32{137}}
	journaled      = truth{statuses: []uint32{7}}
	killedOrLost   = truth{statuses: []uint32{137}, unknowable: true}
	perhapsLost    = truth{statuses: []uint32{7}, unknowable: true}
	stillborn      = truth{statuses: []uint32{137}, unknowable: true} // `delete` has killed it, or found nothing
	lost           = truth{statuses: []uint32{checker.UnknownStatus}}
)

// judge checks all that was seen of the life.
func (s *scene) judge(init truth) {
	s.t.Helper()
	_, err := s.h.Events.Await(limit, s.id, "delete")
	harness.Check(s.t, err)
	s.check(init)
}

// check is judge where the events may lack a delete, because the task may never have come to be.
func (s *scene) check(init truth) {
	s.t.Helper()
	s.rec.Note(checker.Run{Target: s.life, Starts: s.starts("init"), Ended: true, Statuses: init.statuses, Unknowable: init.unknowable})
	// Every exec ends by itself with 3, or is killed.
	exec := checker.Run{Target: s.life, Starts: s.starts("exec"), Ended: true, Statuses: []uint32{3, 137}, Unknowable: true}
	if exec.Exec = "e"; exec.Starts == 0 {
		exec.Starts = checker.NotCounted // it may have been killed before it could say so
	}
	s.rec.Note(exec)
	h, err := s.rec.Over(s.id)
	harness.Check(s.t, err)
	for _, err := range checker.Check(h) {
		s.t.Error(err)
	}
}

// again uses the id once more: it must be as if it were fresh.
func (s *scene) again(ctx context.Context) {
	s.t.Helper()
	harness.Check(s.t, s.crashes.Arm())
	if s.c != nil {
		harness.Check(s.t, s.c.Remove(ctx))
	}
	c, err := s.h.Run(ctx, s.id, harness.Config{Args: harness.Shell("echo second; exit 5")})
	harness.Check(s.t, err)
	exit, err := c.Wait(ctx)
	harness.Check(s.t, err)
	if exit.Code != 5 {
		s.t.Errorf("the id used again ended with %d, want 5", exit.Code)
	}
	harness.Check(s.t, c.Streams.AwaitEnd(limit))
	if said := c.Stdout.String(); said != "second\n" {
		s.t.Errorf("the id used again has said %q", said)
	}
	harness.Check(s.t, c.Remove(ctx))
	harness.Check(s.t, s.h.Gone(ctx))
}
