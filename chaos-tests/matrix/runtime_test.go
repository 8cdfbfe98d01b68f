//go:build chaos

package matrix

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/scene"
	"perdure/chaos-tests/wait"
)

// calls are runc's commands, the scenes in which they are given, and the processes that a killed one may take the end of
// with it.
var calls = []struct {
	command, scene string
	lossy          []string
}{
	{"create", "plain", []string{""}}, {"start", "plain", []string{""}}, {"exec", "plain", []string{"e1"}},
	{"kill", "plain", nil}, {"delete", "plain", nil}, {"pause", "freeze", nil}, {"resume", "freeze", nil}, {"update", "freeze", nil},
}

// moments are when runc dies, or stops: shell code of a runtime that is runc, but that leaves the pid of who is to be hit,
// the first time. "once" is made by the first call; "go" is a fifo that nobody writes to unless it is to go on.
var moments = []struct{ name, script string }{
	{"before", `if mkdir $dir/once 2>/dev/null; then echo $$ >$dir/new; mv $dir/new $dir/pid; read <$dir/go; fi`},
	{during, `if mkdir $dir/once 2>/dev/null; then "$runc" "$@" <&0 & echo $! >$dir/new; mv $dir/new $dir/pid; wait $!; exit $?; fi`},
	{"after", `if mkdir $dir/once 2>/dev/null; then "$runc" "$@"; code=$?; echo $$ >$dir/new; mv $dir/new $dir/pid; read <$dir/go; exit $code; fi`},
}

const during = "during"

// hit is one call of runc that is hit at one moment.
type hit struct {
	command, scene, moment, script string
	lossy                          []string // as Stage has it
	stopped                        bool     // stopped, its worker killed, and continued; else killed
	after                          time.Duration
}

func (h hit) String() string {
	what := "killed"
	if h.stopped {
		what = "stopped"
	}
	return fmt.Sprintf("%s/runc-%s-%s-%s", h.scene, h.command, h.moment, what)
}

// TestRuntime has runc killed, and stopped and continued, in the middle of each call.
func TestRuntime(t *testing.T) {
	random := harness.Random(harness.Seed(t), 0)
	c := newCompany(t)
	queue := make(chan hit)
	var players sync.WaitGroup
	for range lanes {
		players.Go(func() {
			for h := range queue {
				if err := c.hit(h); err != nil {
					c.t.Errorf("%s (%v into it): %v\n  again: %s", h, h.after, err, c.again(h.String()))
				}
			}
		})
	}
	began, n, sure := time.Now(), 0, 0
	for _, h := range hits(random) {
		if run := os.Getenv("PERDURE_CHAOS_RUN"); run == "" || strings.Contains(" "+run+" ", " "+h.String()+" ") {
			queue <- h
			n++
			if h.moment != during {
				sure++
			}
		}
	}
	close(queue)
	players.Wait()
	if least := int64(sure + (n-sure)/2); n >= len(calls) && c.landed.Load() < least {
		t.Errorf("runc was hit in %d of %d calls, want at least %d: before and after its work always, else in every second one", c.landed.Load(), n, least)
	}
	t.Logf("measured: runc was killed or stopped in %d of %d calls, the others were through, in %v", c.landed.Load(), n, time.Since(began).Round(time.Second))
}

func hits(random *rand.Rand) []hit {
	var all []hit
	for _, call := range calls {
		for _, m := range moments {
			for _, stopped := range []bool{false, true} {
				times := 1
				if m.name == during {
					times = 4
				}
				for range times {
					h := hit{call.command, call.scene, m.name, m.script, nil, stopped, 0}
					if !stopped {
						h.lossy = call.lossy
					}
					if m.name == during {
						h.after = time.Duration(random.Int64N(int64(60 * time.Millisecond)))
					}
					all = append(all, h)
				}
			}
		}
	}
	return all
}

// hit plays one scene with a runtime of its own, which is hit.
func (c *company) hit(h hit) error {
	id := fmt.Sprintf("r%d", c.ids.Add(1))
	options, dir := harness.Runtime(c.t, h.command, h.script)
	own, err := c.crashes.Group(id)
	if err == nil {
		err = errors.Join(own.Arm(), own.Trace(), unix.Mkfifo(filepath.Join(dir, "go"), 0o600))
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.h.Context(), wait.Limit(jobLimit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.strike(ctx, h, id, dir, own) }()
	s, err := scene.Find(h.scene)
	if err != nil {
		return err
	}
	err = s.Play(ctx, scene.Stage{
		H: c.h, ID: id, Options: options, Lossy: h.lossy, Repeats: !h.stopped,
		Again: func(err error) bool { return !h.stopped && tellsOfKill(err.Error()) },
	})
	if err != nil {
		cancel()
	}
	return errors.Join(err, <-done)
}

// tellsOfKill says whether an error is that of a runc which SIGKILL has ended.
func tellsOfKill(message string) bool {
	return slices.ContainsFunc([]string{"signal: killed", "exit status 137", "the runtime ended without a word"}, func(words string) bool {
		return strings.Contains(message, words)
	})
}

// strike waits for the call, and hits it.
func (c *company) strike(ctx context.Context, h hit, id, dir string, own *harness.Crashes) error {
	var pid int
	err := wait.Until(ctx, jobLimit, "runc "+h.command, func() error {
		text, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	if err != nil {
		return err
	}
	process, err := proc.Open(pid, func(p proc.Process) bool { return p.Mentions(id) })
	if errors.Is(err, os.ErrNotExist) {
		return h.through()
	}
	if err != nil {
		return fmt.Errorf("runc %s, process %d: %w", h.command, pid, err)
	}
	defer process.Close()
	if h.after > 0 { // not a wait for anything: the moment of the blow
		timer := time.NewTimer(h.after)
		defer timer.Stop()
		<-timer.C
	}
	blow := unix.SIGKILL
	if h.stopped {
		blow = unix.SIGSTOP
	}
	switch err := process.Signal(blow); {
	case errors.Is(err, os.ErrNotExist):
		return h.through()
	case err != nil:
		return err
	}
	c.landed.Add(1)
	if !h.stopped {
		return nil
	}
	err = c.nextWorker(ctx, id, own)
	if h.moment != during {
		release, failed := os.OpenFile(filepath.Join(dir, "go"), os.O_RDWR, 0) // it will read to the end, once it goes on
		if failed == nil {
			_, failed = release.WriteString("\n")
			defer release.Close()
		}
		err = errors.Join(err, failed)
	}
	err = errors.Join(err, gone(process.Signal(unix.SIGCONT)))
	if h.moment != during {
		err = errors.Join(err, wait.Until(ctx, jobLimit, "runc to end", func() error { return left(process) }))
	}
	return err
}

// through is what a blow that finds nobody means: before and after its work, runc's wrapper waits to be hit.
func (h hit) through() error {
	if h.moment == during {
		return nil
	}
	return fmt.Errorf("runc %s was through before it was hit %s its work", h.command, h.moment)
}

func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func left(process *proc.Handle) error {
	if err := process.Signal(0); err == nil {
		return errors.New("it is there")
	}
	return nil
}

// nextWorker kills the worker of a container, and waits until the next one has taken it over.
func (c *company) nextWorker(ctx context.Context, id string, own *harness.Crashes) error {
	trace, err := own.Traced()
	if err != nil {
		return err
	}
	if err := c.killWorker(ctx, id); err != nil {
		return err
	}
	return wait.Until(ctx, jobLimit, "the next worker of "+id, func() error {
		now, err := own.Traced()
		if err != nil {
			return err
		}
		for _, line := range now[min(len(trace), len(now)):] {
			if strings.HasSuffix(line, " recover.after-streams") {
				return nil
			}
		}
		return errors.New("it has adopted nothing")
	})
}

// killWorker kills the worker of a container.
func (c *company) killWorker(ctx context.Context, id string) error {
	worker, err := c.worker(id)
	if err == nil {
		err = proc.Kill(ctx, worker, proc.IsWorker)
	}
	if err != nil {
		return fmt.Errorf("kill the worker of %s: %w", id, err)
	}
	return nil
}

// worker is the worker of a container.
func (c *company) worker(id string) (int, error) {
	keeper, err := proc.Shim{Runtime: daemon.Runtime(), Namespace: c.h.Namespace, Group: id}.Server()
	if err != nil {
		return 0, err
	}
	return proc.Worker(keeper)
}
