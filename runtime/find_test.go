package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// killedRuntime is runc, but that its exec ends by SIGKILL between the start of the
// process and the pid file, which is under another name.
func killedRuntime(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runc")
	must(t, os.WriteFile(path, []byte(`#!/bin/sh
case " $* " in *" exec "*) ;; *) exec runc "$@" ;; esac
for arg; do
	shift
	case $arg in *.pid) arg=$arg.lost ;; esac
	set -- "$@" "$arg"
done
runc "$@" || exit
kill -KILL $$
`), 0o700))
	return path
}

func TestProcessIsFoundByItsStreams(t *testing.T) {
	c := newContainerOf(t, killedRuntime(t))
	c.run(Stdio{}, IOOptions{Direct: true})
	streams := map[string]Stdio{
		"in":       {Stdin: c.fifo("in")},
		"out":      {Stdout: c.fifo("out")},
		"err":      {Stderr: c.fifo("err")},
		"all":      {Stdin: c.fifo("in3"), Stdout: c.fifo("out3"), Stderr: c.fifo("err3")},
		"terminal": {Terminal: true},
		"screen":   {Terminal: true, Stdout: c.fifo("screen")},
		"none":     {},
	}
	want := map[string]int{}
	for name, s := range streams {
		intent := "exec-" + name
		stdio := c.openIO("exec/"+name, s, IOOptions{Intent: intent})
		if pid, ok := c.FindProcess(c.store, "exec/"+name); ok {
			t.Errorf("%s: process %d is found before it is started", name, pid)
		}
		process := []byte(`{"args":["/bin/sleep","1000"],"cwd":"/","user":{"uid":0,"gid":0}}`)
		if _, err := c.Exec(c.ctx, intent, process, stdio, nil); err == nil || !strings.Contains(err.Error(), "137") {
			t.Fatalf("%s: the runtime was not killed: %v", name, err)
		}
		if _, ok := c.PidFile(intent); ok {
			t.Errorf("%s: the killed runtime has left a pid file", name)
		}
		text, err := os.ReadFile(c.file(intent, "pid.lost"))
		must(t, err)
		want[name], err = strconv.Atoi(strings.TrimSpace(string(text)))
		must(t, err)
		stdio.Detach()
	}
	for name := range streams {
		switch pid, ok := c.FindProcess(c.store, "exec/"+name); {
		case name == "none" && ok:
			t.Errorf("a process without streams was found: %d", pid)
		case name != "none" && pid != want[name]:
			t.Errorf("%s: process %d, %v; want %d", name, pid, ok, want[name])
		}
	}
	for name, pid := range want {
		must(t, unix.Kill(pid, unix.SIGKILL))
		must(t, awaitEnd(pid))
		if got, ok := c.FindProcess(c.store, "exec/"+name); ok {
			t.Errorf("%s: found %d, a process that has ended", name, got)
		}
		reap(t, pid)
	}
}
