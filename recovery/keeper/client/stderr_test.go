package client

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	writerEnv = "PERDURE_TEST_WRITER"
	flood     = 10 << 20 // bytes written while nobody reads
	patience  = 30 * time.Second
)

// TestMain is also where the copy of the test binary begins that writes.
func TestMain(m *testing.M) {
	if os.Getenv(writerEnv) != "" {
		write()
		return
	}
	os.Exit(m.Run())
}

// write is a worker that logs far more than its log takes, says so, and when it is
// told to logs one line more.
func write() {
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	for range flood / len(line) {
		if n, err := (Stderr{}).Write(line); n != len(line) || err != nil {
			os.Exit(1)
		}
	}
	_, _ = os.Stdout.WriteString("done\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
	_, _ = Stderr{}.Write([]byte("again\n"))
}

// The bundle's log fifo is read by containerd, which may be down, or hang. A worker
// does not wait for it, and is heard again when it reads.
func TestAFullLogHoldsNobodyUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	check(t, unix.Mkfifo(path, 0o600))
	// As the keeper opens it: read-write, so that no reader is needed.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	check(t, err)
	log := os.NewFile(uintptr(fd), path)
	defer log.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), writerEnv+"=1")
	stdin, err := cmd.StdinPipe()
	check(t, err)
	stdout, err := cmd.StdoutPipe()
	check(t, err)
	conn, err := log.SyscallConn()
	check(t, err)
	check(t, conn.Control(func(fd uintptr) { // os.File.Fd would make it blocking
		dup, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		check(t, err)
		cmd.Stderr = os.NewFile(uintptr(dup), path)
		cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	}))
	began := time.Now()
	check(t, cmd.Start())
	stuck := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer stuck.Stop()
	if _, err := stdout.Read(make([]byte, 5)); err != nil {
		t.Fatalf("the writer has not written %d bytes within %s: %v", flood, patience, err)
	}
	t.Logf("measured: %d bytes for nobody in %s", flood, time.Since(began))

	check(t, log.SetReadDeadline(time.Now().Add(patience)))
	got := make([]byte, 1<<20)
	n, err := log.Read(got)
	check(t, err)
	if line := bytes.Repeat([]byte("x"), 99); !bytes.HasPrefix(got[:n], line) || n < 4096 {
		t.Errorf("of the flood %d bytes are there", n)
	}
	for n := n; n > 0; { // all of it
		n, err = unix.Read(fd, got)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		check(t, err)
	}
	_, err = stdin.Write([]byte("\n"))
	check(t, err)
	check(t, cmd.Wait())
	if n, err = log.Read(got); err != nil || string(got[:n]) != "again\n" {
		t.Errorf("after the reader's return the log has %q: %v", got[:n], err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
