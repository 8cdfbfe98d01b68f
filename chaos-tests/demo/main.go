// Command demo shows, with a private containerd and its own ctr, that killing
// the worker of perdure's shim changes nothing for a container. Everything it
// claims it checks: the first thing that is not so ends it with a sentence and
// exit code 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"perdure/chaos-tests/daemon"
)

const (
	runtime   = "io.containerd.perdure.v2"
	namespace = "demo"
	id        = "hello"
)

// limit bounds the whole demo.
const limit = 3 * time.Minute

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "\nNOT as claimed: %v\n", err)
		os.Exit(1) //nolint:gocritic // demo has cleaned up
	}
	fmt.Println("\nEverything was as claimed.")
}

func demo(ctx context.Context) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("this is not root, who alone can run containers with runc")
	}
	d, err := daemon.New(daemon.Options{})
	if err != nil {
		return err
	}
	s, err := newScene(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.cleanUp()) }()
	if err := d.Start(ctx); err != nil {
		return err
	}
	say("A private containerd serves on %s.", d.Address())
	for _, act := range []func(context.Context) error{
		s.importImage, s.run, s.killWorker, s.stillRunning, s.exec, s.end, s.journal, s.seen,
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func say(format string, args ...any) { fmt.Printf("\n# "+format+"\n", args...) }

func (s *scene) importImage(ctx context.Context) error {
	archive := filepath.Join(s.d.Dir(), "image.tar")
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	if err := errors.Join(daemon.WriteImage(f), f.Close()); err != nil {
		return err
	}
	say("A small image: busybox, made here.")
	_, err = s.show(ctx, "image", "import", archive)
	return err
}

// script runs until it finds the file /end, and then ends with 7.
const script = `echo "hello from the container"; while ! [ -e /end ]; do sleep 0.1; done; exit 7`

func (s *scene) run(ctx context.Context) error {
	say("A container, run by ctr in the foreground:")
	if err := s.startRun("run", "--rm", "--runtime", runtime, daemon.Image, id, "/bin/sh", "-c", script); err != nil {
		return err
	}
	if err := s.awaitOutput(ctx, "hello from the container\n"); err != nil {
		return err
	}
	var err error
	if s.init, err = s.taskPid(ctx, "RUNNING"); err != nil {
		return err
	}
	if s.started, err = startTime(s.init); err != nil {
		return err
	}
	_, err = s.show(ctx, "task", "ls")
	return err
}

func (s *scene) stillRunning(ctx context.Context) error {
	say("The container: the same process as before.")
	if _, err := s.show(ctx, "task", "ls"); err != nil {
		return err
	}
	pid, err := s.taskPid(ctx, "RUNNING")
	if err != nil {
		return err
	}
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	if pid != s.init || started != s.started {
		return fmt.Errorf("init is process %d started at %d, it was %d started at %d", pid, started, s.init, s.started)
	}
	return nil
}

func (s *scene) exec(ctx context.Context) error {
	say("An exec works, with its output and its exit code.")
	out, err := s.show(ctx, "task", "exec", "--exec-id", "e1", id, "/bin/sh", "-c", "echo in the container as pid $$; exit 3")
	if code := exitCode(err); code != 3 {
		return fmt.Errorf("the exec ended with %d instead of 3: %w", code, err)
	}
	if !strings.HasPrefix(out, "in the container as pid ") {
		return fmt.Errorf("the exec said %q", out)
	}
	return nil
}

// end lets the container end. ctr is stopped meanwhile: it would delete the
// task at once, and with it the bundle and the journal in it.
func (s *scene) end(ctx context.Context) error {
	say("It ends with 7, while ctr is held: its delete takes the journal away.")
	if err := s.ctr.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if _, err := s.show(ctx, "task", "exec", "--exec-id", "e2", id, "/bin/touch", "/end"); err != nil {
		return err
	}
	if _, err := s.taskPid(ctx, "STOPPED"); err != nil {
		return err
	}
	_, err := s.show(ctx, "task", "ls")
	return err
}

func (s *scene) seen(context.Context) error {
	say("ctr goes on, and sees how it ended.")
	if err := s.ctr.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	code, err := s.endOfRun()
	if err != nil {
		return err
	}
	if code != 7 {
		return fmt.Errorf("ctr saw %d instead of 7", code)
	}
	fmt.Println("ctr run ended with 7.")
	return nil
}
