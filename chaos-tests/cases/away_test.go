package cases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/checker/real"
	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
)

// TestShimIsKilledWhileContainerdIsAway is case 1 (containerd#14113, moby#46212): the init ends with 7 while containerd is
// down, keeper and worker are killed, containerd starts; the status is 7, with the real pid and the original time, and the
// same in every duplicate. And case 3 (containerd#6402, 10727, moby#43491): the container still runs when its shim is
// killed; it is never "up" but dead, and there are never two inits for one id.
func TestShimIsKilledWhileContainerdIsAway(t *testing.T) {
	harness.NeedsPerdure(t)
	worker, answers := recordingWorker(t)
	h := harness.New(t, "PERDURE_WORKER="+worker)
	ctx := h.Within(t, testLimit)
	t.Run("its init has ended", func(t *testing.T) {
		s := beginAway(ctx, t, h, answers, "ended")
		harness.Check(t, s.c.SignalInit(unix.SIGTERM))
		recorded := s.awaitRecord(ctx)
		s.killShim(ctx)
		harness.Check(t, h.Start(ctx))
		s.checkEnd(ctx, 7, recorded)
	})
	t.Run("its init runs", func(t *testing.T) {
		s := beginAway(ctx, t, h, answers, "runs")
		s.killShim(ctx)
		harness.Check(t, h.Start(ctx))
		s.checkEnd(ctx, 137, time.Time{})
	})
}

// away is a container whose shim is killed while containerd is down.
type away struct {
	t       *testing.T
	h       *harness.Harness
	c       *harness.Container
	life    checker.Target
	rec     *real.Recorder
	tokens  string
	answers string // directory with what each `delete` has answered, by id
	pid     int
	began   time.Time
}

// beginAway starts a container and stops containerd.
func beginAway(ctx context.Context, t *testing.T, h *harness.Harness, answers, id string) *away {
	t.Helper()
	s := &away{t: t, h: h, life: checker.Target{Container: id, Life: 1}, rec: real.NewRecorder(h), tokens: t.TempDir(), answers: answers, began: time.Now()}
	var err error
	s.c, err = s.rec.Create(ctx, s.life, s.config("trap 'exit 7' TERM; echo ready; while :; do sleep 1000 & wait $!; done"))
	harness.Check(t, err)
	harness.Check(t, s.rec.Start(ctx, s.life, s.c))
	harness.Check(t, s.c.Stdout.Await(limit, "ready"))
	s.pid = int(s.c.Task.Pid())
	harness.Check(t, h.Stop(ctx))
	s.rec.Dying(s.life)
	return s
}

// config is a container whose init says that it has been started before it does what the script says.
func (s *away) config(script string) harness.Config {
	return harness.Config{
		Args:   harness.Shell("echo >>/tokens/init; " + script),
		Mounts: []specs.Mount{{Type: "bind", Source: s.tokens, Destination: "/tokens", Options: []string{"rbind", "rw"}}},
	}
}

// awaitRecord waits until the worker has journaled the init's exit, which is when it leaves exit.json beside the journal,
// and returns the time that is in it.
func (s *away) awaitRecord(ctx context.Context) time.Time {
	s.t.Helper()
	var record struct {
		Timestamp time.Time
		Pid       int
		Status    int
	}
	harness.Eventually(s.t, limit, "the exit to be journaled", func() error {
		text, err := os.ReadFile(filepath.Join(s.c.BundleDir(), "exit.json"))
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &record)
	})
	if record.Pid != s.pid || record.Status != 7 || record.Timestamp.Before(s.began) || record.Timestamp.After(time.Now()) {
		s.t.Errorf("recorded is %+v, want pid %d and status 7 since %v", record, s.pid, s.began)
	}
	harness.Check(s.t, s.c.CheckJournal(ctx))
	return record.Timestamp
}

// killShim ends the keeper and its worker together.
func (s *away) killShim(ctx context.Context) {
	s.t.Helper()
	pid, err := s.c.Keeper()
	harness.Check(s.t, err)
	keeper, err := proc.Open(pid, s.c.Shim().IsServer)
	harness.Check(s.t, err)
	defer keeper.Close()
	pid, err = s.c.Worker(ctx)
	harness.Check(s.t, err)
	worker, err := proc.Open(pid, proc.IsWorker)
	harness.Check(s.t, err)
	defer worker.Close()
	harness.Check(s.t, errors.Join(worker.Signal(unix.SIGKILL), keeper.Signal(unix.SIGKILL)))
	harness.Check(s.t, errors.Join(worker.Wait(ctx), keeper.Wait(ctx)))
}

// recordingWorker is perdure, but that a copy of what `delete` answers stays in a directory. containerd runs it while it
// starts, before anybody could hear of it by an event.
func recordingWorker(t *testing.T) (path, answers string) {
	t.Helper()
	bin, err := daemon.Bin()
	harness.Check(t, err)
	dir := t.TempDir()
	path = filepath.Join(dir, "perdure")
	text := fmt.Sprintf(`#!/bin/bash
perdure=%s
if [[ $1 == cleanup ]]; then
	for ((i = 1; i < $#; i++)); do
		if [[ ${!i} == -id ]]; then j=$((i + 1)) id=${!j}; fi
	done
	$perdure "$@" | tee -a %s/$id
	exit ${PIPESTATUS[0]}
fi
exec $perdure "$@"
`, filepath.Join(bin, "perdure"), dir)
	harness.Check(t, os.WriteFile(path, []byte(text), 0o755))
	return path, dir
}

// checkEnd: containerd, which is back, was told the end, has forgotten the task, and leaves nothing; the id is free.
func (s *away) checkEnd(ctx context.Context, status uint32, at time.Time) {
	s.t.Helper()
	if err := s.c.Load(ctx); err == nil {
		s.t.Errorf("the task is there, and its shim is dead: pid %d", s.c.Task.Pid())
	}
	answer := &api.DeleteResponse{}
	bytes, err := os.ReadFile(filepath.Join(s.answers, s.c.ID))
	harness.Check(s.t, errors.Join(err, proto.Unmarshal(bytes, answer)))
	if int(answer.Pid) != s.pid || answer.ExitStatus != status || !at.IsZero() && !answer.ExitedAt.AsTime().Equal(at) {
		s.t.Errorf("delete answers %v; want %d, pid %d, at %v", answer, status, s.pid, at)
	}
	harness.Check(s.t, s.h.Gone(ctx))
	text, err := os.ReadFile(filepath.Join(s.tokens, "init"))
	harness.Check(s.t, err)
	s.rec.Note(checker.Run{Target: s.life, Starts: len(text), Pid: s.pid, Ended: true, Statuses: []uint32{status}})
	history, err := s.rec.Over(s.c.ID)
	harness.Check(s.t, err)
	history.Over = false // what containerd tells while it starts, nobody can hear
	for _, err := range checker.Check(history) {
		s.t.Error(err)
	}
	s.again(ctx)
}

// again uses the id a second time: one more init, and that is all.
func (s *away) again(ctx context.Context) {
	s.t.Helper()
	harness.Check(s.t, s.c.Remove(ctx))
	c, err := s.h.Run(ctx, s.c.ID, s.config("exit 5"))
	harness.Check(s.t, err)
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 5 {
		s.t.Errorf("the id used again ended with %d, %v", exit.Code, err)
	}
	harness.Check(s.t, c.Remove(ctx))
	if text, err := os.ReadFile(filepath.Join(s.tokens, "init")); err != nil || len(text) != 2 {
		s.t.Error(fmt.Errorf("inits were started %d times for two lives: %w", len(text), err))
	}
}
