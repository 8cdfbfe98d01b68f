//go:build crashpoints

package crash

import (
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
	if got := mark(t, dir, "kill.after-effect"); got != "kill 2\n" {
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
	if got := mark(t, dir, "kill.after-effect"); !strings.HasPrefix(got, "hold 2") {
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
