package task

import (
	"github.com/containerd/errdefs"
)

// errLeaving is answered by a worker that leaves, to nobody: its owner has closed the
// connections, and the keeper gives the request to the next worker.
var errLeaving = errorf(errdefs.ErrUnavailable, "this worker leaves")

// Close ends this worker's part in every container, for a worker that hands over: nothing
// is decided, journaled, sent or acknowledged from then on, and the journals' locks are
// free when it returns. What is half done stays as it is, for the next worker to settle,
// as after a crash.
//
// Its owner has ended the connections before, so that no answer is given any more. A call
// of the runtime that is under way is not cut off: it goes on to its end, and what comes of
// it is the next worker's to find out. Calls that wait end with their contexts.
func (s *Service) Close() {
	s.mu.Lock()
	s.over = true
	var all []*container
	for _, c := range s.containers {
		all = append(all, c)
	}
	for c := range s.departed {
		all = append(all, c)
	}
	s.mu.Unlock()
	s.idle.close()
	for _, c := range all {
		c.leave()
	}
}

func (s *Service) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// leave ends this worker's part in a container; a second call does nothing.
func (c *container) leave() {
	c.stop()
	c.outbox.stop()
	_ = c.journal.Close()
}

// goneError is why a container decides nothing any more.
func (c *container) goneError() error {
	if c.svc.closed() {
		return errLeaving
	}
	return errorf(errdefs.ErrNotFound, "container %s: the task is deleted", c.id)
}

// close lets go whatever waits to begin, and has nobody leave for want of work.
func (i *idle) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.leaving = true
	if i.timer != nil {
		i.timer.Stop()
	}
	select {
	case <-i.never:
	default:
		close(i.never)
	}
}
