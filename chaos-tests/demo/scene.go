package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// scene is what the acts of the demo share.
type scene struct {
	d   *daemon.Daemon
	bin string // of ctr

	ctr    *exec.Cmd // ctr run, nil once it has ended
	ended  chan error
	output output

	init    int    // pid of the container's init
	started uint64 // when that process was started
}

func newScene(d *daemon.Daemon) (*scene, error) {
	peers, err := daemon.Peers()
	if err != nil {
		return nil, err
	}
	return &scene{d: d, bin: filepath.Join(peers, "ctr"), ended: make(chan error, 1)}, nil
}

func (s *scene) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.bin, append([]string{"--address", s.d.Address(), "--namespace", namespace}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1") // of the host's cgroup v1
	return cmd
}

// show runs ctr for everybody to see, and returns what it printed.
func (s *scene) show(ctx context.Context, args ...string) (string, error) {
	announce(args)
	out, err := s.quiet(ctx, args...)
	fmt.Print(out)
	return out, err
}

func announce(args []string) {
	shown := make([]string, len(args))
	for i, arg := range args {
		shown[i] = arg
		if strings.ContainsAny(arg, " ;$") {
			shown[i] = "'" + arg + "'"
		}
	}
	fmt.Printf("$ ctr %s\n", strings.Join(shown, " "))
}

// quiet runs ctr and returns what it printed. An exit code other than 0 is an
// error, of which exitCode finds the code.
func (s *scene) quiet(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := s.command(args...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return out.String(), fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// exitCode returns the code in an error of quiet, 0 for none and -1 for others.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}

// startRun starts a ctr that stays: without input, as ctr waits for its end.
func (s *scene) startRun(args ...string) error {
	announce(args)
	cmd := s.command(args...)
	cmd.Stdout = io.MultiWriter(os.Stdout, &s.output)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	s.ctr = cmd
	go func() { s.ended <- cmd.Wait() }()
	return nil
}

// endOfRun waits for that ctr and returns its exit code.
func (s *scene) endOfRun() (int, error) {
	select {
	case err := <-s.ended:
		s.ctr = nil
		return exitCode(err), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("ctr has not ended within %v after the container did", patience)
	}
}

func (s *scene) awaitOutput(ctx context.Context, text string) error {
	return wait.Until(ctx, patience, "the container's greeting", func() error {
		select {
		case err := <-s.ended:
			s.ended <- err
			return fmt.Errorf("ctr has ended: %v", err)
		default:
		}
		if !strings.Contains(s.output.String(), text) {
			return errors.New("it has said nothing yet")
		}
		return nil
	})
}

// taskPid waits until ctr shows the task in the given state and returns its pid.
func (s *scene) taskPid(ctx context.Context, state string) (int, error) {
	var pid int
	err := wait.Until(ctx, patience, "the task to be "+state, func() error {
		out, err := s.quiet(ctx, "task", "ls")
		if err != nil {
			return err
		}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == id && f[2] == state {
				pid, err = strconv.Atoi(f[1])
				return err
			}
		}
		return fmt.Errorf("ctr shows %q", out)
	})
	return pid, err
}

// startTime is when a process was started, in clock ticks since boot: with the
// pid it says that it is the same process.
func startTime(pid int) (uint64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64) // field 22, and the first two are cut
}

// cleanUp ends and removes everything, and checks that the shim is gone.
func (s *scene) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	if s.ctr != nil {
		errs = append(errs, s.abandon(ctx))
	}
	errs = append(errs, wait.Until(ctx, patience/2, "the shim to leave", func() error {
		left, err := proc.Select(s.shim().IsServer)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("still there: %v", left)
		}
		return err
	}))
	if err := errors.Join(append(errs, s.d.Stop(ctx))...); err != nil {
		return fmt.Errorf("clean-up: %w (see %s)", err, s.d.Dir())
	}
	for _, dir := range []string{"/sys/fs/cgroup/" + namespace, "/run/containerd/runc/" + namespace} {
		_ = unix.Rmdir(dir) // an empty parent that runc made, if it is there
	}
	return s.d.Remove()
}

// abandon ends a container that the demo did not get to the end of.
func (s *scene) abandon(ctx context.Context) error {
	_ = s.ctr.Process.Kill()
	<-s.ended
	_, taskErr := s.quiet(ctx, "task", "rm", "--force", id)
	_, containerErr := s.quiet(ctx, "container", "rm", id)
	return errors.Join(taskErr, containerErr)
}

// output keeps what the container said.
type output struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
