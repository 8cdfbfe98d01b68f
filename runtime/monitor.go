package runtime

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"

	runc "github.com/containerd/go-runc"
)

// outputDelay is how long a runtime's output is read on after its end: a hook that
// leaves a child behind keeps the pipe open for ever.
const outputDelay = time.Second

func init() { runc.Monitor = monitor{} }

// monitor starts and reaps go-runc's commands. It differs from go-runc's own in that
// a child left behind by a hook cannot hold the call, in that children end with a runtime
// whose time is up, and in that an end by a signal is told as 128 + signal. Commands lead
// process groups of their own.
type monitor struct{}

func (monitor) Start(cmd *exec.Cmd) (chan runc.Exit, error) {
	cmd.WaitDelay = outputDelay
	if cmd.Cancel != nil {
		cmd.Cancel = func() error { return cancel(cmd.Process) }
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exits := make(chan runc.Exit, 1)
	go func() {
		err := cmd.Wait()
		exits <- runc.Exit{Timestamp: time.Now(), Pid: cmd.Process.Pid, Status: exitStatus(cmd, err)}
	}()
	return exits, nil
}

// cancel ends a runtime whose time is up, and what it has started. The calls that end so
// (state, features) run no hooks: there is nothing to clean up. For the others see run.
func cancel(runtime *os.Process) error {
	if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		for _, child := range descendants(runtime.Pid, own) {
			_ = child.kill()
		}
	}
	return runtime.Kill()
}

// StartLocked is for parent death signals, which no call here has.
func (m monitor) StartLocked(cmd *exec.Cmd) (chan runc.Exit, error) { return m.Start(cmd) }

func (monitor) Wait(_ *exec.Cmd, exits chan runc.Exit) (int, error) {
	return (<-exits).Status, nil
}

func exitStatus(cmd *exec.Cmd, err error) int {
	if cmd.ProcessState == nil {
		return 255
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		return 0
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return cmd.ProcessState.ExitCode()
}
