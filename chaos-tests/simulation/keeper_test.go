//go:build crashpoints

package simulation

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
	"perdure/task"
)

// keeper is the process that outlives the workers, with the rules of recovery/keeper.
type keeper struct {
	world *world
	names map[string]*stored

	exits   []*exit
	last    uint64
	holding bool

	requests       []*request // unanswered, in the order of their numbers
	number         uint64
	shutdownWanted bool
	gone           bool // it was asked to leave, and has
	leaving        uint64
}

// stored is a descriptor; those that only the fake runtime knows have no file.
type stored struct{ file *os.File }

// exit is a dead child.
type exit struct {
	task.Exit
	told  *worker
	acked bool
}

// request is a call of a client's that is not answered.
type request struct {
	number uint64
	name   string // of the call, for the trace
	method method
	wait   bool
	handed *worker // who has it now
	times  int
	drops  []string
	answer func(resp any, err error)
}

// method runs a call in a worker.
type method func(ctx context.Context, s *task.Service) (any, error)

func (k *keeper) describe(h io.Writer) {
	fmt.Fprintln(h, slices.Sorted(maps.Keys(k.names)))
	for _, e := range k.exits {
		if !e.acked {
			fmt.Fprintln(h, "exit", e.Pid, e.told != nil && !e.told.isDead())
		}
	}
	for _, r := range k.requests {
		fmt.Fprintln(h, r.name, r.times > 1)
	}
	fmt.Fprintln(h, k.holding, k.shutdownWanted, k.gone)
}

func (k *keeper) left() []string {
	var left []string
	for _, name := range slices.Sorted(maps.Keys(k.names)) {
		left = append(left, "descriptor "+name)
	}
	for _, e := range k.exits {
		if !e.acked {
			left = append(left, fmt.Sprintf("exit of process %d, not acknowledged", e.Pid))
		}
	}
	for _, r := range k.requests {
		left = append(left, "unanswered "+r.name)
	}
	return left
}

// oldest is the lowest number whose answer may be asked for again; Wait does not count.
func (k *keeper) oldest() uint64 {
	for _, r := range k.requests {
		if !r.wait {
			return r.number
		}
	}
	return k.number + 1
}

// reap takes a dead child.
func (k *keeper) reap(pid int, start uint64, status syscall.WaitStatus) {
	k.last++
	k.exits = append(k.exits, &exit{Exit: task.Exit{Seq: k.last, Pid: pid, Start: start, Status: status, At: time.Now()}})
	k.tell()
}

// tell has the worker be told of the exits that it does not know, one after the other.
func (k *keeper) tell() {
	w := k.world
	if !w.alive() || !w.worker.serving {
		return
	}
	for _, e := range k.exits {
		if e.acked || e.told == w.worker {
			continue
		}
		e.told = w.worker
		to := w.worker
		w.add(&turn{class: classExit, label: fmt.Sprintf("exit %03d of process %d is told", e.Seq, e.Pid), worker: to, run: func() {
			go to.svc.Exited(e.Exit) // it waits for its turns as everybody does
		}})
	}
}

// ask takes a call of a client's.
func (k *keeper) ask(name string, wait bool, m method, answer func(any, error)) uint64 {
	k.number++
	r := &request{number: k.number, name: name, method: m, wait: wait, answer: answer}
	k.requests = append(k.requests, r)
	k.hand()
	return r.number
}

// hand gives the worker the requests that it has not got, with their numbers.
func (k *keeper) hand() {
	w := k.world
	if !w.alive() || !w.worker.serving {
		return
	}
	for _, r := range k.requests {
		if r.handed == w.worker {
			continue
		}
		r.handed = w.worker
		r.times++
		to := w.worker
		w.add(&turn{class: classCall, label: fmt.Sprintf("request %03d %s is given", r.number, r.name), worker: to, run: func() {
			go to.serve(r)
		}})
	}
}

// marks are what the keeper says about a request.
func (k *keeper) marks(ctx context.Context, r *request) context.Context {
	md := ttrpc.MD{}
	md.Set(protocol.KeyRequest, strconv.FormatUint(r.number, 10))
	md.Set(protocol.KeyOldest, strconv.FormatUint(min(r.number, k.oldest()), 10))
	if r.times > 1 {
		md.Set(protocol.KeyReplay, "1")
	}
	return ttrpc.WithMetadata(ctx, md)
}

// finish writes an answer to its client, and lets go what waited for that.
func (k *keeper) finish(r *request, resp any, err error) {
	k.requests = slices.DeleteFunc(k.requests, func(o *request) bool { return o == r })
	for _, prefix := range r.drops {
		k.drop(prefix)
	}
	r.answer(resp, err)
	k.tendLeave()
	k.world.ring()
}

func (k *keeper) tendLeave() {
	if k.leaving != 0 && !slices.ContainsFunc(k.requests, func(r *request) bool { return !r.wait }) {
		k.gone = true
	}
}

func (k *keeper) keep(name string, f *os.File) {
	if old := k.names[name]; old != nil && old.file != nil {
		old.file.Close()
	}
	k.names[name] = &stored{f}
}

func (k *keeper) drop(prefix string) {
	for name, s := range k.names {
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			if s.file != nil {
				s.file.Close()
			}
			delete(k.names, name)
		}
	}
}

// dup is a descriptor of the same open file.
func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// channel is one worker's control channel. What a dead worker says is not heard.
type channel struct{ *worker }

func (c channel) Store(name string, f *os.File) error {
	c.world.take(c.worker, "store "+name)
	kept := (*os.File)(nil)
	if f != nil {
		var err error
		if kept, err = dup(f); err != nil {
			return err
		}
	}
	c.world.keeper.keep(name, kept)
	return nil
}

func (c channel) Open(name string, fifo *os.File) error { return c.Store(name, fifo) }

func (c channel) Fetch(name string) (*os.File, error) {
	c.world.take(c.worker, "fetch "+name)
	s := c.world.keeper.names[name]
	if s == nil || s.file == nil {
		return nil, os.ErrNotExist
	}
	return dup(s.file)
}

func (c channel) has(name string) bool {
	_, ok := c.world.keeper.names[name]
	return ok
}

func (c channel) Drop(prefix string) error { return c.DropAfter(prefix, 0) }

func (c channel) DropAfter(prefix string, request uint64) error {
	c.world.take(c.worker, fmt.Sprintf("drop %s after %d", prefix, request))
	k := c.world.keeper
	for _, r := range k.requests {
		if r.number == request {
			r.drops = append(r.drops, prefix)
			return nil
		}
	}
	k.drop(prefix)
	return nil
}

func (c channel) Accept(string, string) (*os.File, error) {
	return nil, fmt.Errorf("there are no terminals in the simulation")
}

func (c channel) Acknowledge(seq uint64) {
	c.world.take(c.worker, fmt.Sprintf("acknowledge %03d", seq))
	for _, e := range c.world.keeper.exits {
		if e.Seq == seq {
			e.acked = true
		}
	}
	c.world.take(c.worker, fmt.Sprintf("acknowledged %03d", seq))
}

// Hold, Watch and Wake are called under locks of the worker's, and return at once.
func (c channel) Hold(on bool) {
	if !c.isDead() {
		c.world.keeper.holding = on
	}
}

func (c channel) Watch(int, uint64)   {}
func (c channel) Wake(string, uint32) {}

func (c channel) WantShutdown() error {
	c.world.take(c.worker, "want shutdown")
	c.world.keeper.shutdownWanted = true
	return nil
}

func (c channel) Leave(request uint64) error {
	c.world.take(c.worker, "leave")
	k := c.world.keeper
	for _, r := range k.requests {
		if strings.HasPrefix(r.name, "create") && r.number != request {
			return fmt.Errorf("request %d creates a task", r.number)
		}
	}
	if !k.shutdownWanted {
		k.world.violation("the keeper is asked to leave, and nobody wanted that")
	}
	k.leaving = max(1, request)
	k.tendLeave()
	return nil
}
