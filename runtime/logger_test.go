package runtime

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// loggerArg is the key that comes first in the URI of a copy of the test binary that is
// a logger.
const loggerArg = "perdure-test-logger"

// loggerURI names a logger that writes what it reads to stdout and stderr in DIR.
func loggerURI(scheme, mode string) string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s://%s?%s=%s&dir=DIR", scheme, (&url.URL{Path: program}).EscapedPath(), loggerArg, mode)
}

// loggerRole is a logger: the rest of its arguments are its mode, "dir" and a directory.
func loggerRole(args []string) int {
	mode, dir := args[0], args[2]
	note := func(name, text string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, _ = f.WriteString(text + "\n")
			_ = f.Close()
		}
	}
	note("loggers", fmt.Sprint(os.Getpid()))
	note("said", strings.Join(append(os.Args[1:], os.Environ()...), " "))
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	ready := os.NewFile(5, "ready")
	switch mode {
	case "exit":
		return 3
	case "mute":
		<-terminated
		return 4
	case "ready", "reader of one":
		_, _ = ready.Write([]byte{1})
	}
	_ = ready.Close()
	if mode == "reader of one" {
		_, _ = os.NewFile(3, "stdout").Read(make([]byte, 1))
		return 5
	}
	var copying sync.WaitGroup
	for fd, name := range map[uintptr]string{3: "stdout", 4: "stderr"} {
		copying.Go(func() {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = io.Copy(f, os.NewFile(fd, name))
			}
			if err != nil {
				note("said", err.Error())
			}
		})
	}
	copying.Wait()
	note("said", "read the end")
	if mode == "sentinel" {
		<-terminated
		note("said", "terminated")
	}
	return 0
}

// awaitLoggersEnd waits until no logger that was started in a directory is alive.
func awaitLoggersEnd(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "loggers"))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	must(t, err)
	await(t, "the loggers have ended", func() bool {
		for _, pid := range strings.Fields(string(text)) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err == nil && !strings.Contains(string(stat), ") Z ") {
				return false
			}
		}
		return true
	})
}

type loggerBench struct {
	t     *testing.T
	dir   string
	store *store
	stdio Stdio
}

func newLoggerBench(t *testing.T, scheme, mode string) *loggerBench {
	dir := t.TempDir()
	uri := strings.ReplaceAll(loggerURI(scheme, mode), "DIR", dir)
	t.Cleanup(func() { awaitLoggersEnd(t, dir) })
	return &loggerBench{t, dir, newStore(t), Stdio{Stdout: uri, Stderr: uri}}
}

func (b *loggerBench) open() (*IO, error) {
	return OpenIO(b.store, "p", b.stdio, IOOptions{Bundle: b.dir, Namespace: "space", ID: "box", Direct: true})
}

// A caller that gives up does not wait for a logger either.
func TestALoggerIsNotWaitedForInVain(t *testing.T) {
	b := newLoggerBench(t, "binary-v2", "mute")
	giveUp := make(chan struct{})
	opened := make(chan error, 1)
	go func() {
		_, err := OpenIO(b.store, "p", b.stdio, IOOptions{Bundle: b.dir, GiveUp: giveUp})
		opened <- err
	}()
	b.await("loggers", "\n")
	close(giveUp)
	if err := within(t, "the end of the wait", opened); err == nil || !strings.Contains(err.Error(), "gave up") {
		t.Error(err)
	}
}

func (b *loggerBench) read(name string) string {
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
	return string(text)
}

func (b *loggerBench) await(name, text string) {
	b.t.Helper()
	await(b.t, name+" has "+text, func() bool { return strings.Contains(b.read(name), text) })
}

func TestALoggerGetsBothStreamsAndItsSurroundings(t *testing.T) {
	for scheme, mode := range map[string]string{"binary-v2": "ready", "binary": "close"} {
		t.Run(scheme, func(t *testing.T) {
			b := newLoggerBench(t, scheme, mode)
			stdio, err := b.open()
			must(t, err)
			_, err = stdio.child[stdout].WriteString("out\n")
			must(t, err)
			_, err = stdio.child[stderr].WriteString("err\n")
			must(t, err)
			b.await("stdout", "out\n")
			b.await("stderr", "err\n")
			want := loggerArg + " " + mode + " dir " + b.dir + " CONTAINER_ID=box CONTAINER_NAMESPACE=space"
			if said := b.read("said"); !strings.HasPrefix(said, want+"\n") {
				t.Errorf("it was called with %q, want %q", said, want)
			}
			must(t, stdio.Started())
			stdio.Exited()
			must(t, stdio.Drained(t.Context()))
			b.await("said", "read the end")
			must(t, stdio.Close())
		})
	}
}

// The last worker's logger is ended by the next, also where it does not end by itself.
func TestALoggerIsTerminatedByALaterWorker(t *testing.T) {
	b := newLoggerBench(t, "binary", "sentinel")
	first, err := b.open()
	must(t, err)
	await(t, "only the logger's end is waited for", func() bool {
		watch, rests := first.Rest()
		return rests && len(watch) == 1 && watch[0] == "p/logger"
	})
	first.Detach()
	next, err := ResumeIO(b.store, "p", b.stdio, first.opts)
	must(t, err)
	must(t, next.Started())
	next.Exited()
	must(t, next.Drained(t.Context()))
	must(t, next.Close())
	b.await("said", "terminated")
}

// A worker killed after the fork leaves a logger that reads the end; the next attempt
// has its own.
func TestALaunchThatIsMadeAgainHasALoggerOfItsOwn(t *testing.T) {
	b := newLoggerBench(t, "binary-v2", "ready")
	first, err := b.open()
	must(t, err)
	first.Detach()
	b.await("said", "read the end")
	second, err := b.open()
	must(t, err)
	_, err = second.child[stdout].WriteString("once\n")
	must(t, err)
	must(t, second.Started())
	b.await("stdout", "once\n")
	must(t, second.Close())
	if got := b.read("stdout"); got != "once\n" {
		t.Errorf("%q is logged", got)
	}
}

// Between the fork and the keeper's hold nobody but the worker knows the logger: killed
// there, it leaves one that reads the end at once, and what is made again is whole.
func TestAWorkerKilledRightAfterTheForkLeavesNoLogger(t *testing.T) {
	b := newLoggerBench(t, "binary-v2", "ready")
	j := job{Stdio: b.stdio, Options: IOOptions{Bundle: b.dir, Intent: "i", Namespace: "space", ID: "box"}}
	const storeLogger = 2 // the keeper is asked for an older one first
	w := startWorkerUntil(t, stop{calls: storeLogger, lost: true}, b.store, "life", j)
	within(t, "the logger's launch", w.stop.reached)
	b.await("loggers", "\n")
	w.kill()
	if names := b.store.names(); len(names) > 0 {
		t.Errorf("the keeper has %v: this test kills too late", names)
	}
	b.await("said", "read the end")
	awaitLoggersEnd(t, b.dir)
	stdio, err := b.open()
	must(t, err)
	_, err = stdio.child[stdout].WriteString("once\n")
	must(t, err)
	must(t, stdio.Started())
	b.await("stdout", "once\n")
	must(t, stdio.Close())
	if got := b.read("stdout"); got != "once\n" {
		t.Errorf("%q is logged", got)
	}
}

func TestLoggersThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/text", []byte("text"), 0o600))
	for name, c := range map[string]struct {
		scheme, mode string
		says         string
	}{
		"ends at once":     {"binary", "exit", "exit status 3"},
		"ends at once, v2": {"binary-v2", "exit", "exit status 3"},
		"says nothing, v2": {"binary-v2", "close", "without saying that it is ready"},
		"missing":          {"binary", dir + "/none", "no such file"},
		"not executable":   {"binary", dir + "/text", "permission denied"},
		"a directory":      {"binary-v2", dir, "permission denied"},
	} {
		for _, terminal := range []bool{false, true} {
			t.Run(fmt.Sprint(name, terminal), func(t *testing.T) {
				b := newLoggerBench(t, c.scheme, c.mode)
				b.stdio.Terminal = terminal
				path, _ := os.Executable()
				if strings.HasPrefix(c.mode, "/") {
					path = c.mode
					b.stdio.Stdout, b.stdio.Stderr = c.scheme+"://"+path, ""
				}
				_, err := b.open()
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v", err)
				}
				if path == c.mode && !errdefs.IsInvalidArgument(err) {
					t.Errorf("the client's mistake is %v", err)
				}
			})
		}
	}
}

// What a process writes after its logger's end neither blocks nor kills it, in this
// worker or the next.
func TestAProcessOutlivesItsLogger(t *testing.T) {
	b := newLoggerBench(t, "binary-v2", "reader of one")
	stdio, err := b.open()
	must(t, err)
	write := func() <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := stdio.child[stdout].Write(make([]byte, 300_000))
			done <- err
		}()
		return done
	}
	must(t, within(t, "output without a logger", write()))
	b.store.awaitGone(t, "p/logger")
	out, err := duplicate(stdio.child[stdout])
	must(t, err)
	stdio.Detach()
	stdio.child[stdout] = out
	next, err := ResumeIO(b.store, "p", b.stdio, stdio.opts)
	must(t, err)
	must(t, within(t, "output without a logger, in the next worker", write()))
	closeAll(out)
	next.Exited()
	must(t, next.Drained(t.Context()))
	must(t, next.Close())
}

// tail reads a file while it grows.
type tail struct{ *os.File }

func (f tail) Read(p []byte) (int, error) {
	for end := deadline(); ; time.Sleep(time.Millisecond) {
		n, err := f.File.Read(p)
		if n > 0 || !errors.Is(err, io.EOF) || time.Now().After(end) {
			return n, err
		}
	}
}

// wholeStream ends a stream that has no end of its own.
func wholeStream(r io.Reader) io.Reader { return io.LimitReader(r, streamSize) }

func TestKilledWorkersLoseNoFileOutput(t *testing.T) {
	for name, terminal := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			b := newKillBench(t, Stdio{Stdout: "file://DIR/stdout", Terminal: terminal})
			cmd := b.begin(func(stdio *IO) *exec.Cmd {
				if terminal {
					return b.terminalProcess("write")
				}
				return process(t, "write", nil, stdio.child[stdout])
			})
			b.follow(cmd)
		})
	}
}

func TestKilledWorkersLoseNoLoggerOutput(t *testing.T) {
	for name, terminal := range map[string]bool{"pipe": false, "terminal": true} {
		t.Run(name, func(t *testing.T) {
			b := newKillBench(t, Stdio{Stdout: loggerURI("binary-v2", "ready"), Terminal: terminal})
			cmd := b.begin(func(stdio *IO) *exec.Cmd {
				if terminal {
					return b.terminalProcess("write")
				}
				return process(t, "write", nil, stdio.child[stdout])
			})
			b.follow(cmd)
			must(t, CloseIO(b.keeper, "p"))
			awaitLoggersEnd(t, b.job.Options.Bundle)
		})
	}
}

// follow checks the file a stream goes to, through the killings, and that nothing comes
// after its end.
func (b *killBench) follow(cmd *exec.Cmd) {
	b.t.Helper()
	path := filepath.Join(b.job.Options.Bundle, "stdout")
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	must(b.t, err)
	k := newKillings(b.t, b.keeper, b.job)
	read := k.check(wholeStream(tail{f}), f)
	k.run().kill()
	b.job.Exited = true
	last := startWorker(b.t, b.keeper, "copy", b.job)
	defer last.kill()
	must(b.t, cmd.Wait())
	must(b.t, within(b.t, "the end of the stream", read))
	await(b.t, "the streams are let go", func() bool {
		for _, name := range b.keeper.names() {
			if name != "p/logger" && name != "p/stderr" {
				return false
			}
		}
		return true
	})
	if info, err := os.Stat(path); err != nil || info.Size() != streamSize {
		b.t.Errorf("%d bytes are written, want %d (%v)", info.Size(), streamSize, err)
	}
}
