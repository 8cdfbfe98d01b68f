package runtime

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// scripted is a Runc whose runtime is a shell script.
func scripted(t *testing.T, script string, c Config) *Runc {
	t.Helper()
	c.Binary = filepath.Join(t.TempDir(), "runtime")
	must(t, os.WriteFile(c.Binary, []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	c.Namespace, c.ID, c.Instance, c.Bundle, c.Root = "test", "x", "i1", t.TempDir(), t.TempDir()
	c.KeeperPID = os.Getpid()
	return New(c)
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		intent   string
		restores bool
		want     time.Duration
	}{
		{"checkpoint-12", false, criuTimeout}, {"start-3", false, time.Minute}, {"start-3", true, criuTimeout},
		{"create-1", true, time.Minute}, {"exec-4", true, time.Minute}, {"cleanup", false, time.Minute}, {"", true, time.Minute},
	} {
		r := New(Config{Timeout: time.Minute, Restores: c.restores})
		if got := r.Limit(c.intent); got != c.want {
			t.Errorf("%q, restores %v: %s, want %s", c.intent, c.restores, got, c.want)
		}
	}
}

// A dump that a dead worker has begun has a dump's time for the next one, too.
func TestOrphanedDumpIsNotCutShort(t *testing.T) {
	r := scripted(t, "sleep $SECONDS_TO_GO && exit 7; exit 137", Config{Timeout: time.Millisecond, FailWait: time.Millisecond})
	for intent, want := range map[string]int{"create-1": -1, "checkpoint-1": 7} {
		cmd := exec.Command(r.Binary)
		length := "1000"
		if want == 7 {
			length = "0.5"
		}
		cmd.Env = append(os.Environ(), r.marker(intent), "SECONDS_TO_GO="+length)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		must(t, r.WaitOrphans(context.Background(), intent))
		<-ended
		if got := cmd.ProcessState.ExitCode(); got != want && !(want < 0 && got == 137) { // the shell's, whose sleep was killed first
			t.Errorf("%s ended with %d, want %d", intent, got, want)
		}
	}
}

// Who is in a hurry says how long a runtime may go on when its time is up.
func TestHungRuntimeEndsInTime(t *testing.T) {
	r := scripted(t, "while :; do sleep 1000; done", Config{FailWait: 50 * time.Millisecond})
	for name, call := range map[string]func(context.Context) error{
		"state":  func(ctx context.Context) error { _, err := r.State(ctx); return err },
		"delete": func(ctx context.Context) error { return r.Delete(ctx, "cleanup", true) },
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		begin := time.Now()
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took >= defaultFailWait {
			t.Errorf("%s took %s", name, took)
		}
		cancel()
	}
}

// A process that could not be ended is tried again for as long as the call lasts.
func TestCallThatCannotBeEndedIsTriedAgain(t *testing.T) {
	returned, tries := make(chan struct{}), 0
	err := endCall(returned, func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		close(returned)
		return nil
	})
	if tries != 3 || err != nil {
		t.Errorf("%d tries, %v", tries, err)
	}
}

// A work directory of the caller's may have the log of an earlier dump.
func TestEarlierDumpsLogIsNotThisOnes(t *testing.T) {
	work := t.TempDir()
	log := filepath.Join(work, dumpLog)
	must(t, os.WriteFile(log, []byte("(00.1) Error (criu/x.c:1): of yesterday\n"), 0o600))
	r := scripted(t, "exit 1", Config{})
	err := r.Checkpoint(context.Background(), "checkpoint-1", CheckpointOptions{ImagePath: t.TempDir(), WorkPath: work})
	if err == nil || strings.Contains(err.Error(), "yesterday") {
		t.Errorf("a dump that failed before CRIU was run: %v", err)
	}
}

// CRIU at its highest log level writes without bounds; what it died of is at the end.
func TestEndOfALongDumpLogIsKept(t *testing.T) {
	work := t.TempDir()
	r := scripted(t, "dd if=/dev/zero bs=1M count=3 2>/dev/null | tr '\\0' '\\n' >"+work+"/"+dumpLog+
		"; echo '(00.1) Error (criu/x.c:1): of today' >>"+work+"/"+dumpLog+"; exit 1", Config{})
	err := r.Checkpoint(context.Background(), "checkpoint-1", CheckpointOptions{ImagePath: t.TempDir(), WorkPath: work})
	if err == nil || !strings.Contains(err.Error(), "(criu/x.c:1): of today") {
		t.Errorf("a dump that failed: %v", err)
	}
	if info, err := os.Stat(filepath.Join(r.Bundle, "criu-"+dumpLog)); err != nil || info.Size() != logTail {
		t.Errorf("the log that is kept: %v, %v", info, err)
	}
}
