package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"perdure/chaos-tests/wait"
)

// runner runs the tests of a lane. One process of the suite runs as many as it
// can, one after the other; a test that hangs or panics ends it, and the next
// process goes on behind that test.
type runner struct {
	*job
	report
	log     *os.File
	again   map[string]int  // see reader
	mounts  map[string]bool // what there was before
	cgroups map[string]bool
}

func (l *runner) work(ctx context.Context) (err error) {
	if l.Left, err = l.all(ctx, l.First); err != nil {
		return err
	}
	_, err = l.all(ctx, l.Second)
	return err
}

// all runs tests, and returns what they left behind.
func (l *runner) all(ctx context.Context, rest []string) (left []string, err error) {
	for fruitless := 0; len(rest) > 0; {
		whole, err := l.batch(ctx, rest)
		if err != nil {
			return nil, err
		}
		if whole {
			left = append(left, l.leftovers(ctx)...)
		} else {
			l.keepDaemonLogs()
		}
		if err := l.restore(ctx); err != nil {
			return nil, err
		}
		still := l.unfinished(rest)
		if len(still) < len(rest) {
			rest, fruitless = still, 0
		} else if fruitless++; fruitless > maxAttempts { // its containerd has four seconds to start
			return nil, fmt.Errorf("the suite ended before its first test, see %s.log", l.Name)
		}
	}
	return left, nil
}

func (l *runner) unfinished(tests []string) []string {
	return slices.DeleteFunc(slices.Clone(tests), func(name string) bool { return l.Results[name].Outcome != "" })
}

// command is the test binary with the suite's environment and no variable of
// this project's.
func (l *runner) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(l.dir, "suite", "client.test"), args...)
	cmd.Dir = filepath.Join(l.dir, "suite") // for testdata/
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PERDURE_") || strings.HasPrefix(v, "PATH=") || strings.HasPrefix(v, "TMPDIR=")
	})
	cmd.Env = append(cmd.Env, "PATH="+l.path(), "TMPDIR="+l.temp(), "TEST_RUNTIME="+l.Runtime)
	cmd.Env = append(cmd.Env, l.Env...)
	cmd.Stderr = l.log
	return cmd
}

// batch runs tests until one of them hangs or all are through. whole says that
// the suite came to its own end, and so has had its chance to clean up.
func (l *runner) batch(ctx context.Context, tests []string) (whole bool, err error) {
	cmd := l.command("-test.root", "-test.v=test2json", "-test.timeout=0", "-test.parallel=1",
		"-test.run=^("+strings.Join(quoted(tests), "|")+")$")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	stop := l.startKiller(ctx)
	defer stop()
	r := newReader(l.Results, l.again, l.log)
	lines := make(chan string)
	go feed(out, lines)
	hangs := l.watch(r, lines)
	if hangs {
		abandon(ctx, cmd, lines)
	}
	end := cmd.Wait()
	stop()
	crashes := !hangs && r.current != ""
	r.end(hangs, end)
	return !hangs && !crashes, nil
}

func quoted(names []string) []string {
	var all []string
	for _, n := range names {
		all = append(all, regexp.QuoteMeta(n))
	}
	return all
}

// feed passes lines on. The channel is closed at the end of the output.
func feed(out io.Reader, lines chan<- string) {
	defer close(lines)
	s := bufio.NewScanner(out)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		lines <- s.Text()
	}
}

// watch reads until the output ends, or until one test has taken too long.
func (l *runner) watch(r *reader, lines <-chan string) (hangs bool) {
	limit := time.NewTimer(l.limitOf(""))
	defer limit.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				return false
			}
			if r.take(line) {
				limit.Reset(l.limitOf(r.current))
			}
		case <-limit.C:
			return true
		}
	}
}

// stacksLimit is how long the suite may take to print its stacks.
const stacksLimit = 5 * time.Second

// abandon ends a suite that hangs. SIGQUIT makes it say where. Its containerd,
// shims and containers are ended when the lane is restored.
func abandon(ctx context.Context, cmd *exec.Cmd, lines <-chan string) {
	cmd.Process.Signal(syscall.SIGQUIT) //nolint:errcheck // it may have ended meanwhile
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range lines {
		}
	}()
	err := wait.Until(ctx, stacksLimit, "the suite to end", func() error {
		select {
		case <-drained:
			return nil
		default:
			return os.ErrDeadlineExceeded
		}
	})
	if err != nil {
		cmd.Process.Kill() //nolint:errcheck // as above
	}
}

// keepDaemonLogs copies the output of containerd, which the suite keeps in
// files named by a number and prints at its end, into the log of a lane that did
// not get there.
func (l *runner) keepDaemonLogs() {
	names, _ := filepath.Glob(filepath.Join(l.temp(), "[0-9]*")) // the pattern is well-formed
	for _, name := range names {
		data, err := os.ReadFile(name)
		fmt.Fprintf(l.log, "containerd said (%v):\n%s\n", err, data)
	}
}

// startKiller begins to kill workers, if this part is about that. stop ends
// it, and may be called twice.
func (l *runner) startKiller(ctx context.Context) (stop func()) {
	if l.Kill == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Kills += killWorkers(ctx, l.Kill)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}
