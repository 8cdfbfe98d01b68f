package task

import (
	"context"
	"sync"
)

// streams are the stdio of a container's processes, by exec id.
type streams struct {
	mu      sync.Mutex
	io      map[string]IO
	closing map[string]chan struct{} // those of a start that has failed, until they are closed
}

// willClose has a start wait until the streams of the last one, which has failed, are closed: they go only once that is
// journaled. The returned function ends the wait.
func (s *streams) willClose(exec string) (over func()) {
	done := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing == nil {
		s.closing = map[string]chan struct{}{}
	}
	s.closing[exec] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closing[exec] == done {
			delete(s.closing, exec)
		}
		close(done)
	}
}

// closed waits until no streams of an earlier start are in the way, or ctx ends.
func (s *streams) closed(ctx context.Context, exec string) {
	s.mu.Lock()
	done := s.closing[exec]
	s.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
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
