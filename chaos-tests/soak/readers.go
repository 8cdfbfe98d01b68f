package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// readers is how many clients only ask, of whatever container there is.
const readers = 3

// reading lets the readers of a container look at the life that it has. A life ends when nobody looks any more: so an
// answer is never compared with the next one.
type reading struct {
	mu   sync.RWMutex
	life *life
}

func (r *reading) begin(l *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life = l
}

func (r *reading) end() { r.begin(nil) }

// read asks for the state of random containers, one after the other.
func (s *soak) read(ctx context.Context, i int) {
	random := stream(s.Seed, fmt.Sprintf("reader %d", i))
	for ctx.Err() == nil {
		slot := s.slots[random.IntN(len(s.slots))]
		what := random.IntN(4)
		r := s.reading[slot.ID]
		r.mu.RLock()
		if l := r.life; l != nil {
			if err := l.glance(what); err != nil {
				l.fail(err)
			}
		}
		r.mu.RUnlock()
		pause(ctx, between(random, 5*retryPause/100, retryPause))
	}
}

// glance asks for the state, or looks at the process itself: it is the same one until it may end.
func (l *life) glance(what int) error {
	if what > 0 {
		l.state("")
		return nil
	}
	before := l.alive()
	if !before || startTime(l.pid) == l.start || !l.alive() {
		return nil
	}
	return fmt.Errorf("the init was process %d, started at tick %d of the kernel's clock, and is gone", l.pid, l.start)
}

// alive says that there is an init that runs, and that nothing has ended.
func (l *life) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running && l.start != 0 && !l.ending
}

// shares are the CPU shares that the kernel has for a container; "" where it counts them otherwise.
func (s *soak) shares(id string) string {
	data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpu", s.h.Namespace, id, "cpu.shares"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
