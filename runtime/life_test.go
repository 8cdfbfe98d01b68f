package runtime

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// lineRole is a container process that reads one line and writes it twice.
func lineRole() int {
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		fmt.Fprintln(os.Stderr, "process:", err)
		return 1
	}
	fmt.Print(line, line)
	return 0
}

// lifeRole is a worker that has a process launched or finds it launched.
func lifeRole() int {
	keeper, j := workerJob()
	if err := live(keeper, j); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	select {}
}

func live(keeper *remote, j job) error {
	open := OpenIO
	if j.Launched {
		open = ResumeIO
	}
	stdio, err := open(keeper, "p", j.Stdio, j.Options)
	if err != nil {
		return err
	}
	if !j.Launched {
		pid := ""
		if !j.Stdio.Terminal { // the test has the terminal
			cmd := roleCommand("line", stdio.child[stdin], stdio.child[stdout])
			if err := cmd.Start(); err != nil {
				return err
			}
			pid = strconv.Itoa(cmd.Process.Pid)
		}
		if _, err := keeper.call(wire{Op: "launched", Name: pid}, nil); err != nil {
			return err
		}
	}
	if err := stdio.Started(); err != nil {
		return err
	}
	if j.Exited {
		stdio.Exited()
	}
	return nil
}

// life is one process's stdio, whose workers are killed after the same number of calls
// to the keeper, before they are answered: two in a row while they bring the process up,
// one while it runs and one after its end.
type life struct {
	*killBench
	calls  int
	killed bool // some worker made as many calls
}

// through has workers work until done, and returns what it gives.
func through[T any](l *life, what string, done <-chan T) (result T) {
	l.t.Helper()
	for kills := 0; ; kills++ {
		calls := l.calls
		if kills == 2 || kills == 1 && l.job.Launched {
			calls = 0
		}
		w := startWorkerUpTo(l.t, calls, l.keeper, "life", l.job)
		select {
		case result = <-done:
			w.kill()
			return result
		case <-w.stop.reached:
			l.killed = true
			w.kill()
		case <-time.After(patience):
			w.kill()
			l.t.Fatalf("waited %s in vain: %s", patience, what)
		}
		select {
		case result = <-done: // by the last call
			return result
		default:
		}
	}
}

// A client that has its fifos open before the first worker, and writes at once, gets
// all and no end before the last, wherever workers are killed.
func (l *life) run() {
	const line = "line\n"
	s := l.job.Stdio
	written, read, closeIn := make(chan error, 1), make(chan string, 1), make(chan struct{})
	go func() {
		in, err := os.OpenFile(s.Stdin, os.O_WRONLY, 0)
		if err == nil {
			_, err = in.WriteString(line)
		}
		written <- err
		<-closeIn
		closeAll(in)
	}()
	defer close(closeIn)
	go func() { read <- l.output(line + line) }()
	pid, err := strconv.Atoi(through(l, "the launch", l.keeper.launched))
	if s.Terminal {
		cmd := l.terminalProcess("line")
		pid, err = cmd.Process.Pid, nil
	}
	must(l.t, err)
	ended := make(chan error, 1)
	go func() { ended <- awaitEnd(pid) }()
	l.job.Launched = true
	must(l.t, through(l, "the process's end", ended))
	if status := reap(l.t, pid); status != 0 {
		l.t.Errorf("killed after %d calls: the process ended with status %d", l.calls, status)
	}
	l.job.Exited = true
	if got := through(l, "the end of its output", read); got != line+line {
		l.t.Errorf("killed after %d calls: the client read %q", l.calls, got)
	}
	if err := within(l.t, "the input is written", written); err != nil {
		l.t.Errorf("killed after %d calls: the client wrote: %v", l.calls, err)
	}
	must(l.t, CloseIO(l.keeper, "p"))
	if strings.Contains(s.Stdout, "://") {
		if got := l.output(""); got != line+line {
			l.t.Errorf("killed after %d calls: %q is written in the end", l.calls, got)
		}
	}
	awaitLoggersEnd(l.t, l.job.Options.Bundle)
}

// output is what the client has got: of a fifo all to its end, of what is written to a
// file as much as is wanted.
func (l *life) output(want string) string {
	path := l.job.Stdio.Stdout
	if strings.Contains(path, "://") {
		path = filepath.Join(l.job.Options.Bundle, "stdout")
	}
	for end := deadline(); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			l.t.Error(err)
		}
		if path == l.job.Stdio.Stdout || len(text) >= len(want) || time.Now().After(end) {
			return string(text)
		}
	}
}

func TestWorkersAreKilledAfterEachCall(t *testing.T) {
	for name, j := range map[string]job{
		"direct":   {Stdio: Stdio{Stdin: "in", Stdout: "out"}, Options: IOOptions{Direct: true}},
		"pipe":     {Stdio: Stdio{Stdin: "in", Stdout: "out"}},
		"terminal": {Stdio: Stdio{Stdin: "in", Stdout: "out", Terminal: true}},

		"file":               {Stdio: Stdio{Stdin: "in", Stdout: "file://DIR/stdout"}},
		"terminal to file":   {Stdio: Stdio{Stdin: "in", Stdout: "file://DIR/stdout", Terminal: true}},
		"logger":             {Stdio: Stdio{Stdin: "in", Stdout: loggerURI("binary-v2", "ready")}},
		"terminal to logger": {Stdio: Stdio{Stdin: "in", Stdout: loggerURI("binary-v2", "ready"), Terminal: true}},
	} {
		t.Run(name, func(t *testing.T) {
			stride := 1
			if j.Stdio.Terminal && strings.Contains(j.Stdio.Stdout, "://") {
				stride = 3 // each half of these is killed at every call by another kind
			}
			for calls, killed := 1, true; killed; calls += stride {
				b := newKillBench(t, j.Stdio)
				b.job.Options.Direct = j.Options.Direct
				l := &life{killBench: b, calls: calls}
				l.run()
				killed = l.killed
			}
		})
	}
}

// What a client has written before the process is there is not lost with a launch that
// is undone: it is in the client's fifo still.
func TestInputOutlivesAnUndoneLaunch(t *testing.T) {
	b := newKillBench(t, Stdio{Stdin: "in"})
	first, err := OpenIO(b.keeper, "p", b.job.Stdio, b.job.Options)
	must(t, err)
	in, err := os.OpenFile(b.job.Stdio.Stdin, os.O_WRONLY, 0)
	must(t, err)
	_, err = in.WriteString("line\n")
	must(t, err)
	if _, rests := first.Rest(); !rests || first.works != 0 {
		t.Error("input is copied before there is a process")
	}
	first.Detach() // as if killed
	second, err := OpenIO(b.keeper, "p", b.job.Stdio, b.job.Options)
	must(t, err)
	cmd := process(t, "line", second.child[stdin], nil)
	must(t, second.Started())
	must(t, second.Started())
	must(t, cmd.Wait())
	must(t, in.Close())
	must(t, second.Close())
}
