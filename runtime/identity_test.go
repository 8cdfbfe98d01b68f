package runtime

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// killNamed kills and reaps the process whose pid is in a file.
func killNamed(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	must(t, err)
	must(t, unix.Kill(pid, unix.SIGKILL))
	reap(t, pid)
}

func TestProcessIdentity(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	pid := cmd.Process.Pid
	start, err := StartTime(pid)
	must(t, err)
	if err := SignalProcess(pid, start+1, unix.SIGKILL); !errdefs.IsNotFound(err) {
		t.Errorf("signal for an earlier process of the same pid: %v", err)
	}
	must(t, SignalProcess(pid, start, unix.SIGKILL))
	must(t, awaitEnd(pid))
	if _, err := StartTime(pid); !errors.Is(err, ErrZombie) {
		t.Errorf("start time of a zombie: %v", err)
	}
	if err := SignalProcess(pid, start, unix.SIGKILL); !errdefs.IsNotFound(err) {
		t.Errorf("signal for a zombie: %v", err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys() == nil {
		t.Errorf("sleep was not killed: %v", err)
	}
	if _, err := StartTime(pid); !errdefs.IsNotFound(err) {
		t.Errorf("start time of a reaped process: %v", err)
	}
	if err := SignalProcess(pid, start, unix.SIGKILL); !errdefs.IsNotFound(err) {
		t.Errorf("signal for a reaped process: %v", err)
	}
}

// TestOnlyAChildIsIdentified: a pid that is by now that of another parent's process is not the one that was brought up.
func TestOnlyAChildIsIdentified(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	start, err := StartTime(cmd.Process.Pid)
	must(t, err)
	if child, err := ChildStartTime(cmd.Process.Pid, os.Getpid()); err != nil || child != start {
		t.Errorf("our child: %d, %v; want %d", child, err, start)
	}
	if _, err := ChildStartTime(cmd.Process.Pid, os.Getppid()); !errdefs.IsNotFound(err) {
		t.Errorf("as another's child: %v", err)
	}
}

func TestStartTimeWithOddCommandName(t *testing.T) {
	cmd := exec.Command("sh", "-c", `printf ') Z 1 2 (' >/proc/self/comm; echo; read x`)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	if _, err := StartTime(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	must(t, in.Close())
	_ = cmd.Wait()
}
