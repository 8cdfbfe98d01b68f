package keeperdeath

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
)

// situation is what a container is in when its whole shim dies.
type situation struct {
	name   string
	begin  func(context.Context, *scene)
	init   truth
	events []string // as far as they tell of an exec
}

// situations: what the init ends with is what the journal or `delete` can know.
var situations = []situation{
	{"an init that has ended", func(ctx context.Context, s *scene) {
		s.run(ctx, false)
		endInit(ctx, s)
		harness.Check(s.t, s.rec.Wait(ctx, s.life, s.c))
	}, journaled, nil},
	{"running", func(ctx context.Context, s *scene) { s.run(ctx, false) }, killedByDelete, nil},
	{"created", func(ctx context.Context, s *scene) {
		c, err := s.rec.Create(ctx, s.life, s.config(false))
		harness.Check(s.t, err)
		s.c = c
		s.served(ctx)
	}, killedByDelete, nil},
	{"paused", func(ctx context.Context, s *scene) {
		s.run(ctx, false)
		harness.Check(s.t, s.rec.Pause(ctx, s.life, s.c))
	}, killedByDelete, nil},
	{"running with an exec", func(ctx context.Context, s *scene) {
		s.run(ctx, true)
		_, err := s.rec.Exec(ctx, s.life, s.c, harness.ExecConfig{ID: "e", Args: harness.Sleep()})
		harness.Check(s.t, err)
	}, killedByDelete, []string{"create", "start", "exec-added e", "exec-started e", "exit e", "exit", "delete"}},
}

// hold takes hold of the keeper and its worker.
func (s *scene) hold() (keeper, worker *proc.Handle) {
	s.t.Helper()
	keeper, err := proc.Open(s.keeper, s.c.Shim().IsServer)
	harness.Check(s.t, err)
	s.t.Cleanup(keeper.Close)
	worker, err = proc.Open(s.worker, proc.IsWorker)
	harness.Check(s.t, err)
	s.t.Cleanup(worker.Close)
	return keeper, worker
}

func TestKeeperAndWorkerAreKilled(t *testing.T) {
	keepersAreKilled(t, unix.SIGKILL, func(s *scene, situation situation) {
		if situation.events != nil {
			_, err := s.h.Events.Expect(limit, s.id, situation.events...)
			harness.Check(s.t, err)
		}
	})
}

// The worker is stopped, so that it neither notices its keeper's end nor lets go of the journal: `delete` does without.
// Once it goes on, it leaves, and does no harm.
func TestKeeperIsKilledWhileItsWorkerHangs(t *testing.T) {
	keepersAreKilled(t, unix.SIGSTOP, func(*scene, situation) {})
}

// keepersAreKilled kills a keeper in each situation, after its worker was sent a signal. A stopped worker goes on when
// containerd has forgotten the task; also is called when all is judged.
func keepersAreKilled(t *testing.T, signal unix.Signal, also func(*scene, situation)) {
	stage := newStage(t)
	ctx := stage.h.Within(t, testLimit)
	for _, situation := range situations {
		t.Run(situation.name, func(t *testing.T) {
			s := stage.scene(t)
			situation.begin(ctx, s)
			keeper, worker := s.hold()
			s.rec.Dying(s.life)
			harness.Check(t, errors.Join(worker.Signal(signal), keeper.Signal(unix.SIGKILL)))
			s.forgotten(ctx)
			if err := worker.Signal(unix.SIGCONT); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			harness.Check(t, worker.Wait(ctx))
			harness.Check(t, s.h.Gone(ctx))
			s.judge(situation.init)
			also(s, situation)
			s.again(ctx)
		})
	}
}
