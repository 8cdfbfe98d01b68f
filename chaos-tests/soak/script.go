package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lines returns what `seq n` prints, each line ended by end.
func lines(n int, end string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		b.WriteString(strconv.Itoa(i))
		b.WriteString(end)
	}
	return b.String()
}

// newline is how a line ends that is written to a terminal, or not.
func newline(terminal bool) string {
	if terminal {
		return "\r\n"
	}
	return "\n"
}

// mark is shell code that says that the process was started. Every process of a life appends to one file.
func mark(process string) string { return "echo " + process + " >>/w/started\n" }

// signalled is the code of a process that a signal has ended.
func signalled(s syscall.Signal) uint32 { return 128 + uint32(s) }

// initScript is what the init of a life runs. Its handlers are there before it says that it was started: who waits for
// that can send signals. USR2 is how it is told to exit by itself, by somebody outside and past every shim.
func initScript(s slot, p lifePlan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "trap 'exit %d' TERM USR2\ntrap 'echo 1 >>/w/signals' USR1\n%sseq %d\n", p.Code, mark("init"), p.Output)
	if s.Stdin {
		b.WriteString("cat\n")
	}
	b.WriteString("echo >>/w/done\n")
	if p.Ending == endQuick {
		fmt.Fprintf(&b, "exit %d\n", p.Code)
		return b.String()
	}
	b.WriteString("while :; do sleep 1000 & wait $!; done\n")
	return b.String()
}

// initOutput is what that writes.
func initOutput(s slot, p lifePlan) string {
	out := lines(p.Output, newline(s.Terminal))
	if s.Stdin {
		out += lines(p.Input, "\n")
	}
	return out
}

// execArgs are the arguments of an exec called id.
func execArgs(id string, p *execPlan) []string {
	script := mark(id)
	switch p.Kind {
	case execOutput:
		script += fmt.Sprintf("seq %d; exit %d", p.Lines, p.Code)
	case execInput:
		script += fmt.Sprintf("cat; exit %d", p.Code)
	case execKilled, execLeft:
		script += "echo ready; exec sleep 1000"
	case execSize:
		script += fmt.Sprintf("while ! [ -e /w/%s ]; do sleep 0.02; done; stty size; exit %d", id, p.Code)
	case execMissing:
		return []string{"/bin/there-is-no-such-program"}
	}
	return []string{"/bin/sh", "-c", script}
}

// execText is what that writes.
func execText(p *execPlan) string {
	end := newline(p.Terminal)
	switch p.Kind {
	case execOutput:
		return lines(p.Lines, end)
	case execInput:
		return lines(p.Lines, "\n")
	case execKilled, execLeft:
		return "ready" + end
	case execSize:
		return fmt.Sprintf("%d 100%s", p.Rows, end)
	}
	return ""
}

// execStatuses are what an exec can truly end with.
func execStatuses(p *execPlan) []uint32 {
	switch p.Kind {
	case execKilled:
		return []uint32{signalled(p.Signal)}
	case execLeft:
		return []uint32{signalled(syscall.SIGKILL)}
	}
	return []uint32{p.Code}
}

// count returns how many lines of a file of the life are text; no file has none.
func (l *life) count(file, text string) int {
	data, err := os.ReadFile(filepath.Join(l.dir, file))
	if err != nil {
		return 0
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if strings.TrimSuffix(line, "\n") == text {
			n++
		}
	}
	return n
}

// starts is how often a process says that it was started.
func (l *life) starts(process string) int { return l.count("started", process) }
