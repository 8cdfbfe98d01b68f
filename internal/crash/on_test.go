//go:build crashpoints

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain is also the process that passes points: "kill.after-effect" and, as a
// step that can fail, "start.after-effect", each of them twice.
func TestMain(m *testing.M) {
	group, child := os.LookupEnv("CRASH_TEST_GROUP")
	if !child {
		os.Exit(m.Run())
	}
	Scope(group)
	for range 2 {
		Here("kill", "", AfterEffect)
		if Fail("start", "e", AfterEffect) != nil {
			os.Exit(3)
		}
	}
}

// passing runs that process, with points armed for the group "g".
func passing(t *testing.T, armed, group string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	top := t.TempDir()
	dir = filepath.Join(top, "g")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "armed"), []byte(armed), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CRASH_TEST_GROUP="+group, "PERDURE_CRASH_DIR="+top)
	return cmd, dir
}

func mark(t *testing.T, dir, point string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, point))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKill(t *testing.T) {
	cmd, dir := passing(t, "kill.after-effect 2", "g")
	_ = cmd.Run()
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	if got := mark(t, dir, "kill.after-effect"); got != "kill.after-effect kill 2\n" {
		t.Errorf("the mark is %q", got)
	}
	if got := mark(t, dir, "kill.after-effect.passed"); got != "++" {
		t.Errorf("it was passed %q", got)
	}
}

func TestError(t *testing.T) {
	cmd, _ := passing(t, "exec-start.after-effect error", "g")
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// What comes after "then" waits for what comes before it, and traces say what was passed.
func TestThen(t *testing.T) {
	cmd, dir := passing(t, "exec-start.after-effect error\nthen\nkill.after-effect\n", "g")
	if err := os.WriteFile(filepath.Join(dir, "trace"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("first it ended with %v", cmd.ProcessState)
	}
	again := exec.Command(os.Args[0])
	again.Env = cmd.Env
	_ = again.Run()
	if status := again.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() {
		t.Errorf("then it ended with %v", again.ProcessState)
	}
	last := exec.Command(os.Args[0])
	last.Env = cmd.Env
	if err := last.Run(); err != nil {
		t.Errorf("at last it ended with %v", err)
	}
	want := fmt.Sprintf("%d kill.after-effect\n%[1]d exec-start.after-effect\n%[2]d kill.after-effect\n", cmd.Process.Pid, again.Process.Pid)
	if got := mark(t, dir, "trace"); !strings.HasPrefix(got, want) {
		t.Errorf("the trace is %q, want %q first", got, want)
	}
}

func TestOtherGroup(t *testing.T) {
	cmd, dir := passing(t, "kill.after-effect", "other")
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("%v were left, %v", entries, err)
	}
}

func TestHold(t *testing.T) {
	cmd, dir := passing(t, "kill.after-effect hold 2", "g")
	fifo := filepath.Join(dir, "kill.after-effect.hold")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	release, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for it to come
	if err != nil {
		t.Fatal(err)
	}
	if got := mark(t, dir, "kill.after-effect"); got != "kill.after-effect hold 2\n" {
		t.Errorf("held, its mark is %q", got)
	}
	if err := syscall.Kill(cmd.Process.Pid, 0); err != nil {
		t.Errorf("held, it is gone: %v", err)
	}
	if err := release.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
