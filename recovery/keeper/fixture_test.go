package keeper_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// patience bounds every wait of a test.
const patience = 2 * time.Minute

// kept is a running keeper with what the tests need around it.
type kept struct {
	t      *testing.T
	dir    string
	socket string
	pid    int
	events chan event
	seen   []event
}

// run starts a keeper whose workers live by lives (see fake), with limits as
// JSON over the defaults. It ends with the test, and everything below it.
func run(t *testing.T, lives, limits string) *kept {
	t.Helper()
	return runIn(t, t.TempDir(), lives, limits)
}

// runIn is run with the socket called s in a directory.
func runIn(t *testing.T, dir, lives, limits string) *kept {
	t.Helper()
	k := &kept{t: t, dir: dir, socket: filepath.Join(dir, "s"), events: make(chan event, 1<<16)}
	fifo := filepath.Join(dir, "events")
	must(t, unix.Mkfifo(fifo, 0o600))
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0) // both ends: no end of file between workers
	must(t, err)
	t.Cleanup(func() { reader.Close() })
	go func() {
		lines := bufio.NewReader(reader)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var e event
			if json.Unmarshal(line, &e) == nil {
				k.events <- e
			}
		}
	}()
	if limits == "" {
		limits = "{}"
	}
	k.pid = spawnKeeper(t, k, []string{
		"TEST_EVENTS=" + fifo, "TEST_LIFE=" + filepath.Join(dir, "life"), "TEST_LIVES=" + lives, "TEST_LIMITS=" + limits,
	})
	t.Cleanup(k.end)
	return k
}

func spawnKeeper(t *testing.T, k *kept, env []string) int {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: k.socket, Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	must(t, err)
	defer f.Close()
	log, err := os.OpenFile(filepath.Join(k.dir, "log"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	must(t, err)
	defer log.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must(t, err)
	defer null.Close()
	self, err := os.Executable()
	must(t, err)
	p, err := os.StartProcess(self, []string{self, "keeper"}, &os.ProcAttr{
		Dir: "/", Env: append(os.Environ(), env...), Files: []*os.File{null, null, log, f},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	must(t, err)
	defer p.Release()
	return p.Pid
}

// end kills the keeper and what it leaves, and checks that nothing is left.
func (k *kept) end() {
	if k.t.Failed() {
		log, _ := os.ReadFile(filepath.Join(k.dir, "log"))
		k.t.Logf("log:\n%s", log)
	}
	noChildren(k.t)
}

// noChildren kills, by pid, all children of the test process, and those that
// come to it thereby, until there is none.
func noChildren(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, pid := range children(t, os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		_, err := unix.Wait4(-1, nil, 0, nil)
		for err == nil {
			var pid int
			if pid, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); pid == 0 {
				break
			}
		}
		if errors.Is(err, unix.ECHILD) {
			return
		}
	}
	t.Fatalf("%d children are left", len(children(t, os.Getpid())))
}

// children lists the children of a process, zombies included.
func children(t *testing.T, parent int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	must(t, err)
	if tasks == nil && unix.Kill(parent, 0) == nil {
		t.Fatal("no /proc/PID/task/TID/children here: the kernel lacks CONFIG_PROC_CHILDREN")
	}
	var list []int
	for _, task := range tasks {
		b, _ := os.ReadFile(task) // a thread may be gone
		for _, field := range strings.Fields(string(b)) {
			pid, err := strconv.Atoi(field)
			must(t, err)
			list = append(list, pid)
		}
	}
	return list
}

// next waits for the next event that match accepts; others are passed over.
func (k *kept) next(what string, match func(event) bool) event {
	k.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-k.events:
			k.seen = append(k.seen, e)
			if match(e) {
				return e
			}
		case <-timeout:
			k.t.Fatalf("waited for %s; last of %d events: %+v", what, len(k.seen), k.seen[max(0, len(k.seen)-5):])
		}
	}
}

func (k *kept) hello() event {
	k.t.Helper()
	return k.next("a hello", func(e event) bool { return e.Event == "hello" })
}

func (k *kept) request(method string) event {
	k.t.Helper()
	return k.next("request "+method, func(e event) bool { return e.Event == "request" && e.Method == method })
}

func (k *kept) dial() *ttrpc.Client {
	k.t.Helper()
	c := ttrpc.NewClient(k.dialRaw())
	k.t.Cleanup(func() { c.Close() })
	return c
}

func (k *kept) dialRaw() net.Conn {
	k.t.Helper()
	conn, err := net.Dial("unix", k.socket)
	must(k.t, err)
	k.t.Cleanup(func() { conn.Close() })
	must(k.t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// answer is the outcome of a call.
type answer struct {
	text string
	err  error
}

func call(c *ttrpc.Client, method, in string) chan answer {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	done := make(chan answer, 1)
	go func() {
		defer cancel()
		var out wrapperspb.StringValue
		err := c.Call(ctx, service, method, wrapperspb.String(in), &out)
		done <- answer{out.Value, err}
	}()
	return done
}

// ask calls and wants an answer without error.
func (k *kept) ask(c *ttrpc.Client, method, in string) string {
	k.t.Helper()
	a := <-call(c, method, in)
	if a.err != nil {
		k.t.Fatalf("%s(%.60q): %v", method, in, a.err)
	}
	return a.text
}

func (k *kept) logged(text string) {
	k.t.Helper()
	k.eventually("log line "+text, func() bool {
		b, err := os.ReadFile(filepath.Join(k.dir, "log"))
		return err == nil && bytes.Contains(b, []byte(text))
	})
}

// eventually polls a condition that nothing announces.
func (k *kept) eventually(what string, ok func() bool) {
	k.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			k.t.Fatalf("waited for %s", what)
		}
	}
}

// exited waits for the keeper's own end.
func (k *kept) exited() syscall.WaitStatus {
	k.t.Helper()
	fd, err := unix.PidfdOpen(k.pid, 0)
	must(k.t, err)
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	if err != nil || n == 0 {
		k.t.Fatalf("waited for the keeper's exit: %v", err)
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(k.pid, &status, 0, nil)
	must(k.t, err)
	return status
}

func kill(t *testing.T, pid int) {
	t.Helper()
	must(t, unix.Kill(pid, unix.SIGKILL))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("%w", err))
	}
}
