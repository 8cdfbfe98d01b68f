package runtime

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// store stands in for the keeper: named descriptors that outlive a worker.
type store struct {
	mu    sync.Mutex
	files map[string]*os.File
	drops chan string // gets every prefix dropped, where a test wants to know

	launched chan string // gets the pid of the process that a worker has launched
}

func newStore(t *testing.T) *store {
	s := &store{files: map[string]*os.File{}, drops: make(chan string, 1024), launched: make(chan string, 1)}
	t.Cleanup(func() {
		if left := s.names(); len(left) > 0 {
			t.Errorf("left with the keeper: %v", left)
		}
	})
	return s
}

func duplicate(f *os.File) (dup *os.File, err error) {
	err = control(f, func(fd int) error {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		dup = os.NewFile(uintptr(n), f.Name())
		return err
	})
	return dup, err
}

func (s *store) Store(name string, f *os.File) error {
	dup, err := duplicate(f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	closeAll(s.files[name])
	s.files[name] = dup
	return nil
}

func (s *store) Open(name string, fifo *os.File) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fifo.Fd()), os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.Store(name, f)
}

func (s *store) Fetch(name string) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.files[name]
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, os.ErrNotExist)
	}
	return duplicate(f)
}

func (s *store) Drop(prefix string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.files {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			closeAll(f)
			delete(s.files, name)
		}
	}
	select {
	case s.drops <- prefix:
	default:
	}
	return nil
}

func (s *store) Accept(listener, name string) (*os.File, error) {
	l, err := s.Fetch(listener)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var fd int
	err = control(l, func(n int) (err error) {
		fd, _, err = unix.Accept4(n, unix.SOCK_CLOEXEC)
		return err
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	return f, s.Store(name, f)
}

func (s *store) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
