package task

import (
	"context"
	"sync"
)

// streams are the stdio of a container's processes, by exec id.
type streams struct {
	mu sync.Mutex
	io map[string]IO
}

func (s *streams) put(exec string, io IO) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.io[exec] = io
}

func (s *streams) get(exec string) IO {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.io[exec]
}

// exited tells the streams that their process is gone.
func (s *streams) exited(exec string) {
	if io := s.get(exec); io != nil {
		io.Exited()
	}
}

// drained waits until the output of a process is handed over, or ctx ends.
func (s *streams) drained(ctx context.Context, exec string) {
	if io := s.get(exec); io != nil {
		_ = io.Drained(ctx) // a child that keeps the output open must not hold up Delete
	}
}

// close ends the copying and drops the descriptors, where this worker has the
// stdio of a process.
func (s *streams) close(exec string) (had bool, err error) {
	s.mu.Lock()
	io := s.io[exec]
	delete(s.io, exec)
	s.mu.Unlock()
	if io == nil {
		return false, nil
	}
	return true, io.Close()
}
