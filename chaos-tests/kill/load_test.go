// Package kill holds the tests in which shim workers are killed while they
// work. What clients see must be as if nothing had happened.
package kill

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

// opLimit bounds one operation of the load, kills of its worker included.
const opLimit = 90 * time.Second

// load makes work for shims from several goroutines and keeps what the clients
// learn.
type load struct {
	h    *harness.Harness
	t    *testing.T
	pod  string // group that new containers join, empty: each its own shim
	dir  string // on the host, /once in every container
	done chan struct{}

	steps atomic.Int64 // client calls that have returned
	names atomic.Int64

	mu    sync.Mutex
	lives map[string]*harness.Life
	ended map[string]int // user processes that must have run once, by token
	alive map[string]*harness.Container
	leave map[string]bool // ids of those that are being deleted
	bad   error
}

func newLoad(t *testing.T, h *harness.Harness) *load {
	l := &load{
		h: h, t: t, dir: filepath.Join(h.Dir(), "once"), done: make(chan struct{}),
		lives: map[string]*harness.Life{}, ended: map[string]int{}, alive: map[string]*harness.Container{}, leave: map[string]bool{},
	}
	if err := os.Mkdir(l.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return l
}

// mount lets containers leave a mark that outlives them.
func (l *load) mount() []specs.Mount {
	return []specs.Mount{{Type: "bind", Source: l.dir, Destination: "/once", Options: []string{"rbind", "rw"}}}
}

// mark is shell code that says that the process called token was started.
func mark(token string) string { return fmt.Sprintf("echo %s >>/once/started; ", token) }

// name returns an id that was not used before.
func (l *load) name(kind string) string { return fmt.Sprintf("%s%d", kind, l.names.Add(1)) }

// codes makes all of 0..255 in turn, over all tests.
var codes atomic.Uint32

// code returns an exit code; 256 calls return each once.
func (l *load) code() uint32 { return codes.Add(1) & 0xff }

// step counts one client call that has returned, and hands on its error.
func (l *load) step(err error) error {
	l.steps.Add(1)
	return err
}

// keep notes a container that is there for the whole test.
func (l *load) keep(ctx context.Context, id string, cfg harness.Config) *harness.Container {
	l.t.Helper()
	cfg.Mounts = l.mount()
	c, err := l.h.Run(ctx, id, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.began(c)
	return c
}

func (l *load) began(c *harness.Container) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[c.ID] = &harness.Life{
		Container: c.ID, Pid: int(c.Task.Pid()), Execs: map[string]uint32{}, Pids: map[string]int{},
	}
	l.alive[c.ID] = c
}

// exec notes how an exec ended.
func (l *load) exec(c *harness.Container, id string, r harness.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[c.ID].Execs[id] = r.Code
	l.lives[c.ID].Pids[id] = r.Pid
	l.ended[id]++
}

// leaves notes that a container is about to be deleted: its shim may be gone
// at any time from now on.
func (l *load) leaves(c *harness.Container) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leave[c.ID] = true
}

// gone notes how a container that was deleted ended.
func (l *load) gone(c *harness.Container, code uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[c.ID].Exited, l.lives[c.ID].Deleted = &code, true
	l.ended[c.ID]++
	delete(l.alive, c.ID)
}

// failed keeps the first error and ends the load.
func (l *load) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bad == nil {
		l.bad = err
	}
}

func (l *load) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bad
}

// work does random operations on the given containers until the load is over.
func (l *load) work(ctx context.Context, random *rand.Rand, on []*harness.Container) {
	for l.failure() == nil {
		select {
		case <-l.done:
			return
		default:
		}
		op := operations[random.IntN(len(operations))]
		c := on[random.IntN(len(on))]
		ctx, cancel := context.WithTimeout(ctx, wait.Limit(opLimit))
		if err := op.do(ctx, l, random, c); err != nil {
			l.failed(fmt.Errorf("%s on %s: %w", op.name, c.ID, err))
		}
		cancel()
	}
}

// started counts the marks that processes left.
func (l *load) started() (map[string]int, error) {
	data, err := os.ReadFile(filepath.Join(l.dir, "started"))
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, token := range strings.Fields(string(data)) {
		count[token]++
	}
	return count, nil
}
