package soak

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"perdure/chaos-tests/checker"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// life is one life of a container, from its create to its delete, as its clients know it.
type life struct {
	s     *soak
	slot  slot
	n     int // from 1 on
	plan  lifePlan
	ctx   context.Context
	dir   string // on the host: /w in the container
	began uint64 // tick

	mu      sync.Mutex
	calls   []checker.Call
	asked   []answer // the same, with what excused them
	runs    []checker.Run
	over    bool // nothing is noted any more
	pid     int
	start   uint64
	created time.Time // before the create, by the machine's clock
	deleted time.Time // after the delete
	left    uint64    // the same as a tick
	toAll   []*span   // when all processes were signalled
	running bool      // from when on the init runs
	ending  bool      // from when on it may end

	stillborn bool // the init has ended before it ran, as its runc was killed

	init    *process
	exit    chan answer // of the init's Wait
	execs   sync.WaitGroup
	lefts   sync.WaitGroup
	pausing sync.RWMutex // execs are started under its read side, so that only one of them in a while meets a pause
}

func (l *life) target(exec string) checker.Target {
	return checker.Target{Container: l.slot.ID, Life: l.n, Exec: exec}
}

func (l *life) note(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.calls = append(l.calls, a.Call)
		l.asked = append(l.asked, a)
	}
}

func (l *life) noteRun(r checker.Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, r)
}

// fail ends the whole run: this must not be.
func (l *life) fail(err error) {
	if l.ctx.Err() == nil {
		l.s.violated(l, err)
	}
}

// live is one life from the begin to the end.
func (l *life) live() {
	defer l.release()
	if err := l.prepare(); err != nil {
		l.fail(err)
		return
	}
	for _, part := range []func() error{l.create, l.begin, l.work, l.end, l.ended, l.delete} {
		if err := part(); err != nil {
			l.fail(err)
			return
		}
		if l.ctx.Err() != nil {
			return
		}
	}
	l.close()
}

// prepare writes the program of the init.
func (l *life) prepare() error {
	for _, name := range []string{"started", "signals", "done"} {
		if err := os.RemoveAll(filepath.Join(l.dir, name)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(l.dir, "init"), []byte(initScript(l.slot, l.plan)), 0o600)
}

// create asks until there is a task. What was cut off is there whole or not at all, and the id can be used.
func (l *life) create() error {
	l.created = time.Now()
	var tries []answer
	for l.ctx.Err() == nil {
		p, err := l.attach("", l.slot.Terminal, l.slot.Stdin)
		if err != nil {
			return err
		}
		a := l.ask(request{op: checker.OpCreate, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
			r, err := t.Create(ctx, &tasks.CreateTaskRequest{
				ContainerID: l.slot.ID, Rootfs: l.s.mounts[l.slot.ID], Terminal: l.slot.Terminal,
				Stdin: p.fifos.Stdin, Stdout: p.fifos.Stdout, Stderr: p.fifos.Stderr,
			})
			if err == nil {
				c.Pid, c.Start = int(r.Pid), startTime(int(r.Pid))
			}
			return err
		}})
		if a.trouble != "" && l.ctx.Err() == nil {
			tries = append(tries, a)
			if now := l.state(""); now.ok() {
				l.happened(tries[len(tries)-1:], now)
				a.err, a.trouble, a.Pid, a.Start = nil, "", now.Pid, startTime(now.Pid)
				tries = tries[:len(tries)-1]
			}
		}
		if a.ok() {
			l.happened(tries, answer{})
			l.adopt(p, a)
			return nil
		}
		p.detach()
		if a.trouble == "" {
			return unexpected(a)
		}
		l.s.orphan(l.slot.ID)
		if err := l.cleaned(); err != nil {
			return err
		}
	}
	return nil
}

// cleanedFor is how long nothing of a failed create must have been seen.
const cleanedFor = 500 * time.Millisecond

// cleaned waits until containerd has cleaned up after a create that has failed. It does so beside, by `delete` and by the
// path of the bundle, and would take away what a client creates meanwhile by the same id.
func (l *life) cleaned() error {
	var since time.Time
	return l.until("containerd to have cleaned up after a create", func() error {
		left, err := proc.Select(func(p proc.Process) bool {
			return slices.Contains(p.Args, l.slot.ID) && slices.Contains(p.Args, l.s.h.Namespace) && (slices.Contains(p.Args, "delete") || slices.Contains(p.Args, "cleanup"))
		})
		if err != nil {
			return err
		}
		if _, err := os.Stat(l.s.h.Bundle(l.s.h.Namespace, l.slot.ID)); err == nil || len(left) > 0 {
			since = time.Time{}
			return fmt.Errorf("the bundle is there (%v), or %v", err == nil, left)
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) < cleanedFor {
			return errors.New("it may not have begun")
		}
		return nil
	})
}

// adopt notes who the init is, and waits for its end from now on.
func (l *life) adopt(p *process, a answer) {
	l.mu.Lock()
	l.init, l.pid, l.start = p, a.Pid, a.Start
	l.mu.Unlock()
	l.exit = l.await("")
}

// await asks for the end of a process, again and again if it must.
func (l *life) await(exec string) chan answer {
	done := make(chan answer, 1)
	go func() {
		done <- l.settle(request{op: checker.OpWait, exec: exec, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
			if exec == "" {
				r, err := t.Wait(ctx, &tasks.WaitRequest{ContainerID: l.slot.ID})
				if err == nil {
					c.Status, c.ExitedAt = r.ExitStatus, at(r.ExitedAt)
				}
				return err
			}
			r, err := t.Wait(ctx, &tasks.WaitRequest{ContainerID: l.slot.ID, ExecID: exec})
			if err == nil {
				c.Status, c.ExitedAt = r.ExitStatus, at(r.ExitedAt)
			}
			return err
		}}, nil)
	}()
	return done
}

// exitLimit is how long the end of a process may take to be told, with containerd away for 20 s and everything else.
const exitLimit = 150 * time.Second

// told waits for the answer of await.
func (l *life) told(done chan answer, exec string) (answer, error) {
	select {
	case a := <-done:
		return a, nil
	case <-l.ctx.Done():
		return answer{err: l.ctx.Err(), trouble: runOver}, nil
	case <-time.After(wait.Limit(exitLimit)):
		return answer{}, fmt.Errorf("the wait for %s is not answered within %v", l.target(exec), exitLimit)
	}
}

// begin starts the init, if it is to be, and waits until it has done what it does.
func (l *life) begin() error {
	if !l.plan.Ending.started() {
		return nil
	}
	if l.plan.Ending == endQuick {
		l.mayEnd()
	}
	a := l.settle(request{op: checker.OpStart, do: func(ctx context.Context, t tasks.TasksClient, c *checker.Call) error {
		r, err := t.Start(ctx, &tasks.StartRequest{ContainerID: l.slot.ID})
		if err == nil {
			c.Pid = int(r.Pid)
		}
		return err
	}}, func(now answer) bool { return now.State != checker.Created })
	if !a.ok() && !(a.is(codes.FailedPrecondition) && l.startWasKilled()) {
		return refusedOr(l, a)
	}
	if err := l.awaitRun(); err != nil || l.stillborn {
		return err
	}
	if l.slot.Stdin {
		if err := l.feedInit(); err != nil {
			return err
		}
	}
	return l.until("the init to have written everything", func() error {
		if l.count("done", "") == 0 {
			return errors.New("it has not")
		}
		return nil
	})
}

// awaitRun waits until the init says that it was started. Where a runc was killed over its start it may have ended before:
// runc's init cannot go on if nobody reads what it writes into the exec fifo, and ends with 1.
func (l *life) awaitRun() error {
	return l.until("the init to run", func() error {
		if l.starts("init") > 0 {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.running = true
			return nil
		}
		select {
		case end := <-l.exit:
			l.exit <- end
			l.stillborn = l.starts("init") == 0
			if l.stillborn && !l.startWasKilled() {
				return wait.Never(fmt.Errorf("it has ended without having run: %s", end))
			}
			return nil
		default:
			return errors.New("it has not")
		}
	})
}

// startWasKilled says whether the runc of a start was killed in this life; the init's is the only one so far.
func (l *life) startWasKilled() bool {
	return slices.ContainsFunc(l.s.faults.during(l.slot, l.began, l.s.clock.tick(), faultRuncKill), func(f fault) bool { return f.Op == "start" })
}

func (l *life) feedInit() error {
	if err := l.init.feed(l.ctx, lines(l.plan.Input, "\n")); err != nil {
		return fmt.Errorf("input of %s: %w", l.target(""), err)
	}
	return l.closeIO("")
}

func (l *life) closeIO(exec string) error {
	a := l.settle(request{op: checker.OpCloseIO, exec: exec, do: func(ctx context.Context, t tasks.TasksClient, _ *checker.Call) error {
		_, err := t.CloseIO(ctx, &tasks.CloseIORequest{ContainerID: l.slot.ID, ExecID: exec, Stdin: true})
		return err
	}}, nil)
	return refusedOr(l, a)
}

// refusedOr is the violation of an answer that should have been ok.
func refusedOr(l *life, a answer) error {
	if a.ok() || l.ctx.Err() != nil {
		return nil
	}
	return unexpected(a)
}

// progressLimit is how long something in a container may take that nothing keeps from happening: the whole of a machine
// that is busy with kills.
const progressLimit = 60 * time.Second

func (l *life) until(what string, cond func() error) error {
	err := wait.Until(l.ctx, progressLimit, what, cond)
	if l.ctx.Err() != nil {
		return nil
	}
	return err
}

// mayEnd notes that the init may end from now on.
func (l *life) mayEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending = true
}

// signalInit sends a signal to the init past everybody.
func (l *life) signalInit(sig unix.Signal) error {
	h, err := proc.Open(l.pid, func(p proc.Process) bool { return p.Mentions("/" + l.s.h.Namespace + "/" + l.slot.ID) })
	if err != nil {
		return fmt.Errorf("%s, process %d: %w", l.target(""), l.pid, err)
	}
	defer h.Close()
	return h.Signal(sig)
}
