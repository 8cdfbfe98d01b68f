package cases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

const (
	limit     = 60 * time.Second
	testLimit = 15 * time.Minute
)

// TestInitDiesUnderExecs is case 4 (containerd#10651, 10589, 9719): 500 execs are started side by side and the init
// is killed in the middle. Nobody hangs, each exec that was started is told to have ended, later ones are refused, and
// the init's exit is told once, after all of theirs.
func TestInitDiesUnderExecs(t *testing.T) {
	const execs = 500
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "dies", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	var started, refused atomic.Int64
	var once sync.Once
	var running sync.WaitGroup
	for n := range execs {
		running.Go(func() {
			e, err := c.Exec(ctx, harness.ExecConfig{ID: fmt.Sprintf("e%d", n), Args: []string{"/bin/sleep", "1000"}})
			if err != nil {
				refused.Add(1)
				if ctx.Err() != nil {
					t.Errorf("exec %d hung: %v", n, err)
				}
				return
			}
			if started.Add(1) == 20 {
				once.Do(func() { harness.Check(t, c.SignalInit(unix.SIGKILL)) })
			}
			if exit, err := e.AwaitExit(ctx); err != nil || exit.Code != 137 {
				t.Errorf("exec %d ended with %d, %v; want 137", n, exit.Code, err)
			}
		})
	}
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	running.Wait()
	if exit.Code != 137 {
		t.Errorf("the init ended with %d, want 137", exit.Code)
	}
	t.Logf("%d execs were started, %d were refused", started.Load(), refused.Load())
	if started.Load() < 20 || started.Load()+refused.Load() != execs {
		t.Errorf("%d execs were started and %d refused, want %d in all and 20 of them started", started.Load(), refused.Load(), execs)
	}
	_, err = h.Events.Await(limit, "dies", "exit")
	harness.Check(t, err)
	checkOrder(t, h, "dies")
}

// checkOrder: each started exec has one exit, and the init's only one comes after all of them.
func checkOrder(t *testing.T, h *harness.Harness, id string) {
	t.Helper()
	events, err := h.Events.Of(id)
	harness.Check(t, err)
	live, ended := map[string]bool{}, 0
	for _, e := range events {
		switch {
		case e.Name == "exec-started":
			live[e.Exec] = true
		case e.Name == "exit" && e.Exec != "":
			if !live[e.Exec] {
				t.Errorf("exec %s has ended without being started, or twice", e.Exec)
			}
			delete(live, e.Exec)
		case e.Name == "exit":
			if ended++; len(live) > 0 {
				t.Errorf("the init's exit was told before those of %d execs", len(live))
			}
		case ended > 0:
			t.Errorf("%s was told after the init's exit", e)
		}
	}
	if ended != 1 {
		t.Errorf("the init's exit was told %d times", ended)
	}
}

// TestExecEndsWithInit is the other half of case 4: both end by themselves, at the same moment, again and again.
func TestExecEndsWithInit(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	var names []string
	for n := range 20 {
		names = append(names, fmt.Sprintf("init%d", n), fmt.Sprintf("exec%d", n))
	}
	gates, err := h.NewGates(names...)
	harness.Check(t, err)
	for n := range 20 {
		first, second := names[2*n], names[2*n+1]
		id := fmt.Sprintf("c%d", n)
		c, err := h.Run(ctx, id, harness.Config{
			Args: harness.Shell(gates.Await(first) + "exit 3"), Mounts: []specs.Mount{gates.Mount()},
		})
		harness.Check(t, err)
		e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: harness.Shell(gates.Await(second) + "exit 4")})
		harness.Check(t, err)
		if n%2 == 1 {
			first, second = second, first
		}
		harness.Check(t, gates.Open(first))
		harness.Check(t, gates.Open(second))
		exit, err := c.Wait(ctx)
		harness.Check(t, err)
		ended, err := e.AwaitExit(ctx)
		harness.Check(t, err)
		if exit.Code != 3 || ended.Code != 4 && ended.Code != 137 { // killed with its pid namespace, where it was late
			t.Errorf("init and exec ended with %d and %d, want 3 and 4 or 137", exit.Code, ended.Code)
		}
		_, err = h.Events.Await(limit, id, "exit")
		harness.Check(t, err)
		checkOrder(t, h, id)
		harness.Check(t, c.Remove(ctx))
	}
}

// TestExecsDoNotWaitForEachOther is the first half of case 9 (containerd#8557, 2709): while the runtime hangs in one
// exec, 30 and then 70 others are started side by side and end, and every other call is answered.
func TestExecsDoNotWaitForEachOther(t *testing.T) {
	// The exec that hangs is told by a word in its process document, which runc is given as a file.
	hanging, dir := harness.Runtime(t, "exec", `for f; do [[ -f $f ]] && grep -q hangs-here $f && touch $dir/hangs && read < $dir/gate; done`)
	gate := filepath.Join(dir, "gate")
	harness.Check(t, unix.Mkfifo(gate, 0o600))
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Run(ctx, "many", harness.Config{Args: harness.Sleep(), Options: hanging})
	harness.Check(t, err)
	hung := make(chan error, 1)
	go func() {
		_, err := c.Sh(ctx, "hangs", ": hangs-here; exit 0")
		hung <- err
	}()
	harness.Eventually(t, limit, "the runtime to hang", func() error {
		_, err := os.Stat(filepath.Join(dir, "hangs"))
		return err
	})
	for _, execs := range []int{30, 70} {
		harness.Check(t, together(execs, func(n int) error {
			result, err := c.Sh(ctx, fmt.Sprintf("e%d-%d", execs, n), fmt.Sprintf("exit %d", n))
			if err == nil && result.Code != uint32(n) {
				err = fmt.Errorf("it ended with %d", result.Code)
			}
			return err
		}))
	}
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Running {
		t.Errorf("the container is %v, %v", status.Status, err)
	}
	if _, err := c.Task.Pids(ctx); err != nil {
		t.Errorf("pids: %v", err)
	}
	select {
	case err := <-hung:
		t.Errorf("the exec that was to hang has ended: %v", err)
	default:
	}
	harness.Check(t, os.WriteFile(gate, []byte("\n"), 0)) // lets it go on
	harness.Check(t, <-hung)
}

// together runs n things side by side.
func together(n int, do func(n int) error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() {
			if err := do(i); err != nil {
				errs[i] = fmt.Errorf("%d: %w", i, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// TestExecsInARow is the other half of case 9 (containerd#3949): after many execs the shim has as many descriptors
// open as after few, and its memory and the journal have not grown with them.
// PERDURE_TEST_EXECS says how many; the report speaks of 5,000.
func TestExecsInARow(t *testing.T) {
	harness.NeedsPerdure(t)
	execs := 400
	if n, err := strconv.Atoi(os.Getenv("PERDURE_TEST_EXECS")); err == nil {
		execs = n
	}
	h := harness.New(t)
	ctx := h.Within(t, max(testLimit, time.Duration(execs)*time.Second))
	c, err := h.Run(ctx, "many", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	run := func(from, to int) {
		for n := from; n < to; n++ {
			if result, err := c.Sh(ctx, fmt.Sprintf("e%d", n), "exit 5"); err != nil || result.Code != 5 {
				t.Fatalf("exec %d ended with %d, %v", n, result.Code, err)
			}
		}
	}
	warm := execs / 4
	run(0, warm)
	before := use(ctx, t, c)
	run(warm, execs)
	after := use(ctx, t, c)
	t.Logf("after %d execs %+v, after %d %+v", warm, before, execs, after)
	if after.Descriptors > before.Descriptors+4 { // one or two are those of a call that is just going on
		t.Errorf("descriptors have grown from %d to %d", before.Descriptors, after.Descriptors)
	}
	if after.Journal > 256<<10 {
		t.Errorf("the journal is of %d bytes", after.Journal)
	}
	if grown := after.Memory - before.Memory; grown > 2<<20 {
		t.Errorf("the memory of keeper and worker has grown by %d bytes", grown)
	}
}

// usage is what must not grow with what a shim has done.
type usage struct {
	Descriptors int   // of keeper and worker
	Memory      int64 // theirs that was written, bytes
	Journal     int64 // bytes
}

func use(ctx context.Context, t *testing.T, c *harness.Container) usage {
	t.Helper()
	var u usage
	keeper, err := c.Keeper()
	harness.Check(t, err)
	worker, err := c.Worker(ctx)
	harness.Check(t, err)
	for _, pid := range []int{keeper, worker} {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		harness.Check(t, err)
		memory, err := proc.PrivateMemory(pid)
		harness.Check(t, err)
		u.Descriptors += len(open)
		u.Memory += memory.Dirty
	}
	journal, err := os.Stat(filepath.Join(c.BundleDir(), "perdure.db"))
	harness.Check(t, err)
	u.Journal = journal.Size()
	return u
}

// TestInitDiesBeforeItsStart is case 15 (containerd#9103): nothing hangs, the exit is true, and told after the create.
func TestInitDiesBeforeItsStart(t *testing.T) {
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	c, err := h.Create(ctx, "early", harness.Config{Args: harness.Sleep()})
	harness.Check(t, err)
	harness.Check(t, c.SignalInit(unix.SIGKILL))
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if exit.Code != 137 {
		t.Errorf("it ended with %d, want 137", exit.Code)
	}
	harness.Check(t, wait.Until(ctx, limit, "the task to be stopped", func() error {
		status, err := c.Task.Status(ctx)
		if err == nil && status.Status != client.Stopped {
			err = fmt.Errorf("it is %s", status.Status)
		}
		return err
	}))
	if err := c.Task.Start(ctx); err == nil {
		t.Error("a dead init was started")
	}
	// The client gives up a task whose start has failed; what it has not deleted is deleted here.
	if _, err := c.Task.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		t.Errorf("delete: %v", err)
	}
	c.Task = nil
	_, err = h.Events.Expect(limit, "early", "create", "exit", "delete")
	harness.Check(t, err)
}
