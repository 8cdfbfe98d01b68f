package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"perdure/chaos-tests/wait"
)

// batches runs the tests of one part. One process runs as many as it can, one
// after the other; a test that hangs or panics ends it, and the next process
// goes on behind that test.
type batches struct {
	*suite
	part   *part
	log    io.Writer
	before *scene
}

// run runs all tests: in one go those that the model passed, and after that the
// others, as they may leave things behind, which tests would count. The model
// itself has CRIU's alone together for the same reason. What hung with it is
// not run.
func (b *batches) run(ctx context.Context, model *part) error {
	var first, second []string
	for _, name := range b.tests {
		switch o := model.results[name].outcome; {
		case o == hung && b.part != model:
		case o == passed || b.part == model && !strings.HasPrefix(name, "TestCheckpoint"):
			first = append(first, name)
		default:
			second = append(second, name)
		}
	}
	left, err := b.all(ctx, first)
	b.part.left = left
	if err == nil {
		_, err = b.all(ctx, second)
	}
	return err
}

// all runs these tests, and returns what they left behind.
func (b *batches) all(ctx context.Context, rest []string) (left []string, err error) {
	for len(rest) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		whole, err := b.batch(ctx, rest)
		if err != nil {
			return nil, err
		}
		if whole {
			left = append(left, b.leftovers(ctx)...)
		}
		if err := b.before.restore(ctx); err != nil {
			return nil, err
		}
		still := b.unfinished(rest)
		if len(still) == len(rest) {
			return nil, errors.New("the suite ended before its first test: see its log")
		}
		rest = still
	}
	return left, nil
}

func (b *batches) unfinished(tests []string) []string {
	var rest []string
	for _, name := range tests {
		if b.part.results[name].outcome == "" {
			rest = append(rest, name)
		}
	}
	return rest
}

// batch runs tests until one of them hangs or all are through. whole says that
// the suite came to its own end, and so has had its chance to clean up.
func (b *batches) batch(ctx context.Context, tests []string) (whole bool, err error) {
	cmd := b.command("-test.root", "-test.v=test2json", "-test.timeout=0", "-test.parallel=1",
		"-test.run=^("+strings.Join(quoted(tests), "|")+")$")
	cmd.Env = append(cmd.Env, "TEST_RUNTIME="+b.part.runtime)
	cmd.Stderr = b.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	stop := b.startKiller(ctx)
	defer stop()
	r := newReader(b.part, b.log)
	lines := make(chan string)
	go feed(out, lines)
	hung, err := b.watch(ctx, r, lines)
	if hung || err != nil {
		b.abandon(ctx, cmd, lines)
	}
	ended := cmd.Wait()
	stop()
	r.end(hung, ended)
	return !hung && r.current == "", err
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
func (b *batches) watch(ctx context.Context, r *reader, lines <-chan string) (hung bool, err error) {
	limit := time.NewTimer(b.limit)
	defer limit.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				return false, nil
			}
			if r.take(line) {
				limit.Reset(b.limit)
				done := len(b.tests) - len(b.unfinished(b.tests))
				progress(fmt.Sprintf("%s %d/%d %s", b.part.name, done, len(b.tests), r.current))
			}
		case <-limit.C:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// stacksLimit is how long the suite may take to print its stacks.
const stacksLimit = 5 * time.Second

// abandon ends a suite that hangs. SIGQUIT makes it say where. Its containerd,
// shims and containers are ended with the rest when the place is restored.
func (b *batches) abandon(ctx context.Context, cmd *exec.Cmd, lines <-chan string) {
	cmd.Process.Signal(syscall.SIGQUIT) //nolint:errcheck // it may have ended meanwhile
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for range lines {
		}
	}()
	err := wait.Until(context.WithoutCancel(ctx), stacksLimit, "the suite to end", func() error {
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

// startKiller begins to kill workers, if this part is about that. stop ends
// it, and may be called twice.
func (b *batches) startKiller(ctx context.Context) (stop func()) {
	if b.part.kill == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.part.kills += killWorkers(ctx, b.part.kill)
	}()
	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}
