package task

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// shelf is a keeper that only stores.
type shelf struct {
	Keeper
	files map[string]*os.File
}

func (s shelf) Fetch(name string) (*os.File, error) {
	f := s.files[name]
	if f == nil {
		return nil, os.ErrNotExist
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return os.NewFile(uintptr(fd), name), err
}

func (s shelf) DropAfter(prefix string, _ uint64) error { return s.Drop(prefix) }

func (s shelf) Drop(prefix string) error {
	for name, f := range s.files {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			f.Close()
			delete(s.files, name)
		}
	}
	return nil
}

// A logger that does not care for the end of its input ends with the attempt that it
// was started for, when no replay comes. Where one is owed, it is the replay's.
func TestAbandonedAttemptLeavesNoLogger(t *testing.T) {
	fd := -1
	logger := exec.Command("/bin/sleep", "1000")
	logger.SysProcAttr = &syscall.SysProcAttr{PidFD: &fd}
	if err := logger.Start(); err != nil {
		t.Fatal(err)
	}
	watch, err := unix.PidfdOpen(logger.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = logger.Wait(); close(ended) }()
	t.Cleanup(func() { _ = logger.Process.Kill(); <-ended; _ = unix.Close(watch) })
	key := keeperKey("x", "1")
	keeper := shelf{files: map[string]*os.File{initPrefix(key) + "/logger": os.NewFile(uintptr(fd), "logger")}}
	s := New(Config{Keeper: keeper, Machine: NewMachine()})
	for _, owed := range []bool{true, false} {
		if err := s.Abandon(key, nil, owed); err != nil {
			t.Fatal(err)
		}
		if left := len(keeper.files); (left > 0) != owed {
			t.Errorf("owed %v: the keeper has %d descriptors", owed, left)
		}
		fds := []unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 0); err != nil || (n == 0) != owed {
			t.Errorf("owed %v: the logger has ended: %v, %v", owed, n > 0, err)
		}
	}
}
