package keeperdeath

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
	"perdure/internal/crash"
)

// some returns what is run: everything with PERDURE_TEST_ALL, as `make chaos` says, else every nth.
func some[T any](all []T, n int) []T {
	if os.Getenv("PERDURE_TEST_ALL") != "" {
		return all
	}
	var chosen []T
	for i := 0; i < len(all); i += n {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// death is a point at which the keeper is killed, what leads there, and what the init ends with.
type death struct {
	point string // as Arm takes it
	do    func(context.Context, *scene)
	init  truth
}

// name is the point without the action.
func (d death) name() string { return strings.Fields(d.point)[0] }

// What leads to a point, in a container that runs. What it is answered does not matter: mostly that the connection is closed.
func ask(ctx context.Context, s *scene) {
	_ = s.rec.Ask(s.life, checker.OpPids, func(*checker.Call) error {
		_, err := s.c.Task.Pids(ctx)
		return err
	})
}

func killInit(ctx context.Context, s *scene) {
	_ = s.rec.Ask(s.life, checker.OpKill, func(answer *checker.Call) error {
		answer.Signal = int(syscall.SIGKILL)
		return s.c.Task.Kill(ctx, syscall.SIGKILL)
	})
}

func killWorker(ctx context.Context, s *scene) { _, _ = s.c.KillWorker(ctx) }

func endInit(_ context.Context, s *scene) { harness.Check(s.t, s.c.SignalInit(unix.SIGTERM)) }

func runExec(ctx context.Context, s *scene) {
	e, err := s.rec.Exec(ctx, s.life, s.c, harness.ExecConfig{ID: "e", Args: harness.Shell(s.token("exec") + "exit 3")})
	if err == nil {
		_ = s.rec.Finish(ctx, s.life, e)
	}
}

func terminalExec(ctx context.Context, s *scene) {
	_, _ = s.rec.Exec(ctx, s.life, s.c, harness.ExecConfig{ID: "e", Args: harness.Shell("exit 3"), Terminal: true})
}

// running are the deaths of a keeper whose container runs.
var running = []death{
	{"keeper-request.after-number", ask, killedByDelete},
	{"keeper-request.after-number kill", killInit, killedByDelete},
	{"keeper-request.after-forward", ask, killedByDelete},
	{"keeper-request.after-forward kill", killInit, killedOrLost},
	{"keeper-answer.after-receive", ask, killedByDelete},
	{"keeper-answer.after-receive kill", killInit, killedOrLost},
	{"keeper-answer.after-write", ask, killedByDelete},
	{"keeper-death.after-reap", killWorker, killedByDelete},
	{"keeper-worker.after-fork", killWorker, killedByDelete},
	{"keeper-worker.after-hello", killWorker, killedByDelete},
	{"keeper-exit.after-reap", endInit, lost},
	{"keeper-exit.after-queue", endInit, lost},
	{"keeper-exit.after-tell", endInit, perhapsLost},
	{"keeper-exit.after-ack", endInit, journaled}, // in the short run: what is journaled is told
	{"keeper-store.after-keep", runExec, killedByDelete},
	{"keeper-store.after-reply", runExec, killedByDelete},
	{"keeper-open.after-keep", runExec, killedByDelete},
	{"keeper-exit.after-ack", runExec, killedByDelete},
	{"keeper-drop.after-drop", runExec, killedByDelete},
	{"keeper-accept-stored.after-keep", terminalExec, killedByDelete},
}

func TestKeeperOfARunningContainerIsKilled(t *testing.T) {
	dies(t, newStage(t), some(running, 3), func(ctx context.Context, s *scene) { s.run(ctx, false) })
}

// dies has a keeper die each death, in a container that begin brings up.
func dies(t *testing.T, stage *stage, deaths []death, begin func(context.Context, *scene)) {
	ctx := stage.h.Within(t, testLimit)
	for _, d := range deaths {
		t.Run(d.point, func(t *testing.T) {
			s := stage.scene(t)
			begin(ctx, s)
			s.arm(d.point)
			d.do(ctx, s)
			harness.Check(t, s.crashes.Fired(d.name()))
			s.forgotten(ctx)
			harness.Check(t, s.h.Gone(ctx))
			s.judge(d.init)
			s.again(ctx)
		})
	}
}

// coming are the points that the keeper, and the start that leaves it behind, pass while a task is created. The client is
// told that it was not, or that it was: then it was there, and is ended.
var coming = []string{
	"keeper-start.after-lock", "keeper-start.after-bind", "keeper-start.after-fork", "keeper-start.after-address", "keeper-start.after-answer",
	"keeper-accept.after-accept", "keeper-worker.after-fork", "keeper-worker.after-hello",
	"keeper-request.after-number", "keeper-request.after-forward", "keeper-answer.after-receive", "keeper-answer.after-write",
	"keeper-store.after-keep", "keeper-store.after-reply", "keeper-store.after-keep 3",
}

func TestKeeperOfATaskThatIsCreatedIsKilled(t *testing.T) {
	stage := newStage(t)
	ctx := stage.h.Within(t, testLimit)
	for _, point := range some(coming, 3) {
		t.Run(point, func(t *testing.T) {
			s := stage.scene(t)
			s.arm(point)
			c, err := s.rec.Create(ctx, s.life, s.config(false))
			s.c = c
			harness.Check(t, s.crashes.Fired(death{point: point}.name()))
			started := !strings.HasPrefix(point, "keeper-start") // else a lock, a socket or a keeper is left, which the next start finds
			switch {
			case err == nil && started:
				s.forgotten(ctx)
			case err == nil:
				t.Error("a task was created, though its start was killed")
			}
			if started { // a keeper that dies before containerd has connected to it is one that `delete` is not run for
				harness.Check(t, s.h.Gone(ctx, harness.SocketLeft))
			}
			harness.Check(t, s.h.Events.Flush(ctx, s.h.Client()))
			s.check(stillborn)
			s.again(ctx)
		})
	}
}

// leaving are the points of the way out: the init has ended, and its Delete brings the keeper there.
var leaving = []string{
	"keeper-drop-after.after-drop", "keeper-leave.after-unlink", "keeper-leave.after-answer", "keeper-leave.before-exit", "keeper-answer.after-receive",
}

func TestKeeperThatLeavesIsKilled(t *testing.T) {
	stage := newStage(t)
	ctx := stage.h.Within(t, testLimit)
	for _, point := range some(leaving, 2) {
		t.Run(point, func(t *testing.T) {
			s := stage.scene(t)
			s.run(ctx, false)
			endInit(ctx, s)
			harness.Check(t, s.rec.Wait(ctx, s.life, s.c))
			s.arm(point)
			_ = s.rec.Delete(ctx, s.life, s.c)
			harness.Check(t, s.crashes.Fired(point))
			s.forgotten(ctx)
			harness.Check(t, s.h.Gone(ctx))
			s.judge(journaled)
			s.again(ctx)
		})
	}
}

// resting are the points of a keeper without a worker.
var resting = []death{
	{"keeper-rest.after-leave", func(context.Context, *scene) {}, killedByDelete},
	{"keeper-wake.after-wake", func(ctx context.Context, s *scene) {
		harness.Check(s.t, s.c.AwaitRest(ctx))
		_, err := s.input().Write([]byte("wake\n"))
		harness.Check(s.t, err)
	}, killedByDelete},
	{"keeper-exit.after-queue", func(ctx context.Context, s *scene) {
		harness.Check(s.t, s.c.AwaitRest(ctx))
		endInit(ctx, s)
	}, lost},
}

func TestKeeperWithoutAWorkerIsKilled(t *testing.T) {
	dies(t, newStage(t, "PERDURE_IDLE_MS=100"), some(resting, 2), func(ctx context.Context, s *scene) { s.typed(ctx) })
}

// Every point of the keeper is in one of the tests.
func TestEveryPointOfTheKeeperIsReached(t *testing.T) {
	reached := map[string]bool{}
	for _, d := range append(running, resting...) {
		reached[d.name()] = true
	}
	for _, point := range append(coming, leaving...) {
		reached[death{point: point}.name()] = true
	}
	for _, point := range crash.Of(crash.Keeper) {
		if !reached[point] {
			t.Errorf("no test kills the keeper at %s", point)
		}
	}
}
