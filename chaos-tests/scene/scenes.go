package scene

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/harness"
)

// obeys is an init that ends with 9 when it is asked to, and says when it can be.
func obeys() []string {
	return harness.Shell(token("") + `trap 'exit 9' TERM; echo up; while :; do sleep 1000 & wait $!; done`)
}

// ask has such an init end.
func (p *player) ask(ctx context.Context) error {
	if err := p.c.Stdout.Await(stepLimit, "up"); err != nil {
		return err
	}
	p.run("", 9)
	if err := p.kill(ctx, nil, syscall.SIGTERM); err != nil {
		return err
	}
	return p.end(ctx, "up\n")
}

func plain(ctx context.Context, p *player) error {
	if err := p.begin(ctx, harness.Config{Args: obeys()}); err != nil {
		return err
	}
	err := p.exec(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell(token("e1") + "echo said; exit 5"), Terminal: p.Terminal}, 5, "said\n")
	if err != nil {
		return err
	}
	if err := p.state(ctx, client.Running); err != nil {
		return err
	}
	return p.ask(ctx)
}

// execs has one that is killed, one that reads, and one that cannot be started.
func execs(ctx context.Context, p *player) error {
	if err := p.begin(ctx, harness.Config{Args: obeys()}); err != nil {
		return err
	}
	p.run("e1", 137)
	e, err := p.add(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell(token("e1") + "echo up; exec sleep 1000"), Terminal: p.Terminal})
	if err == nil {
		err = p.start(ctx, e.ID())
	}
	if err == nil {
		err = e.Stdout.Await(stepLimit, "up")
	}
	if err == nil {
		err = p.kill(ctx, e, syscall.SIGKILL)
	}
	if err == nil {
		err = p.wait(ctx, e, map[bool]string{false: "up\n", true: "up\r\n"}[p.Terminal])
	}
	if err == nil {
		err = p.remove(ctx, e)
	}
	if err != nil {
		return err
	}
	reads := harness.ExecConfig{ID: "e2", Args: harness.Shell(token("e2") + "cat"), Stdin: strings.NewReader("through\n")}
	if err := p.exec(ctx, reads, 0, "through\n"); err != nil {
		return err
	}
	return p.ask(ctx)
}

// freeze is what is done to a container as a whole. The dump fails where CRIU is not there or does not know the kernel:
// what counts is that the container goes on. Package checkpoint is about dumps that succeed.
func freeze(ctx context.Context, p *player) error {
	if err := p.begin(ctx, harness.Config{Args: obeys(), Stdin: strings.NewReader("")}); err != nil {
		return err
	}
	images, err := os.MkdirTemp(p.H.Dir(), "image-")
	if err != nil {
		return err
	}
	dump, err := typeurl.MarshalAnyToProto(&options.CheckpointOptions{ImagePath: filepath.Join(images, "i")})
	if err != nil {
		return err
	}
	pids := int64(77)
	for _, s := range []struct {
		op   checker.Op
		do   func() error
		then client.ProcessStatus
	}{
		{checker.OpCloseIO, func() error { return p.c.Task.CloseIO(ctx, client.WithStdinCloser) }, client.Running},
		{checker.OpPause, func() error { return p.c.Task.Pause(ctx) }, client.Paused},
		{checker.OpResume, func() error { return p.c.Task.Resume(ctx) }, client.Running},
		{checker.OpUpdate, func() error {
			return p.c.Task.Update(ctx, client.WithResources(&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &pids}}))
		}, client.Running},
		{checker.OpCheckpoint, func() error {
			_, err := p.H.Client().TaskService().Checkpoint(ctx, &tasks.CheckpointTaskRequest{ContainerID: p.ID, Options: dump})
			return err
		}, client.Running},
	} {
		err := p.step("", s.op, func(*checker.Call) error { return s.do() })
		if err != nil && !strings.Contains(err.Error(), "checkpoint failed") {
			return err
		}
		if err := p.state(ctx, s.then); err != nil {
			return err
		}
	}
	return p.ask(ctx)
}

// shared has an init in a pid namespace that is not its own: what it leaves behind, and an exec, are killed with it.
func shared(ctx context.Context, p *player) error {
	init := token("") + "sleep 1000 & echo up; wait"
	if err := p.begin(ctx, harness.Config{Args: harness.Shell(init), SharePID: os.Getpid()}); err != nil {
		return err
	}
	p.run("e1", 137)
	e, err := p.add(ctx, harness.ExecConfig{ID: "e1", Args: harness.Shell(token("e1") + "echo up; exec sleep 1000")})
	if err == nil {
		err = p.start(ctx, e.ID())
	}
	if err == nil {
		err = e.Stdout.Await(stepLimit, "up")
	}
	if err == nil {
		err = p.c.Stdout.Await(stepLimit, "up")
	}
	if err != nil {
		return err
	}
	p.run("", 137)
	if err := p.kill(ctx, nil, syscall.SIGKILL); err != nil {
		return err
	}
	if err := p.wait(ctx, e, "up\n"); err != nil {
		return err
	}
	if err := p.remove(ctx, e); err != nil {
		return err
	}
	return p.end(ctx, "up\n")
}

// failing has a create that fails the first time, in a hook, and an exec that cannot be started.
func failing(ctx context.Context, p *player) error {
	hook := `test -e "$0" && exit 0; : >"$0"; echo hook-says-no >&2; exit 1`
	spec := func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/sh", Args: []string{"sh", "-c", hook, filepath.Join(p.tokens, "hook")}}}} //nolint:staticcheck // what runc 1.1 calls it
		return nil
	}
	again := p.Again
	p.Again = func(err error) bool {
		return strings.Contains(err.Error(), "hook") || again != nil && again(err)
	}
	if err := p.begin(ctx, harness.Config{Args: obeys(), Spec: []oci.SpecOpts{spec}}); err != nil {
		return err
	}
	e, err := p.add(ctx, harness.ExecConfig{ID: "absent", Args: []string{"/no/such/program"}})
	if err != nil {
		return err
	}
	p.Again = func(err error) bool {
		return !strings.Contains(err.Error(), "/no/such/program") && again != nil && again(err)
	}
	if err := p.start(ctx, e.ID()); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		return err
	}
	p.Again = again
	err = p.unrecorded("absent", checker.OpDelete, func() error { // it has no end to tell
		_, err := e.Delete(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return p.ask(ctx)
}

// oom has an init that the kernel kills for want of memory.
func oom(ctx context.Context, p *player) error {
	eat := harness.Shell(token("") + `x=0123456789abcdef; while :; do x=$x$x$x$x; done`)
	run := p.run("", 137)
	run.OOM = true
	if err := p.begin(ctx, harness.Config{Args: eat, Spec: []oci.SpecOpts{oci.WithMemoryLimit(16 << 20)}}); err != nil {
		return err
	}
	return p.end(ctx, "")
}

// spooled is deleted while nobody takes its events.
func spooled(ctx context.Context, p *player) error {
	if err := p.begin(ctx, harness.Config{Args: obeys()}); err != nil {
		return err
	}
	if _, err := p.H.Events.Await(eventLimit, p.ID, "start"); err != nil {
		return err
	}
	if err := p.H.Hide(); err != nil {
		return err
	}
	if _, err := p.c.KillWorker(ctx); err != nil { // the next has no connection yet
		return err
	}
	if err := p.ask(ctx); err != nil {
		return err
	}
	return p.H.Show()
}
