package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"perdure/recovery/keeper/rendezvous"
)

const patience = time.Minute

// caller is a containerd with a bundle.
type caller struct {
	t       *testing.T
	bundle  string
	sockets string
	id      string
	env     []string
}

func newCaller(t *testing.T, id, spec string) *caller {
	t.Helper()
	c := &caller{t: t, bundle: t.TempDir(), sockets: filepath.Join(shortDir(t), "s"), id: id}
	if spec != "" {
		must(t, os.WriteFile(filepath.Join(c.bundle, "config.json"), []byte(spec), 0o600))
	}
	t.Cleanup(func() { noChildren(t) })
	return c
}

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (c *caller) command(stdin []byte, args ...string) *exec.Cmd {
	c.t.Helper()
	self, err := os.Executable()
	must(c.t, err)
	cmd := exec.Command(self, args...)
	cmd.Dir = c.bundle
	cmd.Env = append(os.Environ(), "TEST_SHIM=1", "PERDURE_WORKER="+self, "PERDURE_SOCKET_DIR="+c.sockets, "TTRPC_ADDRESS=/from/env", "GOMAXPROCS=2")
	cmd.Env = append(cmd.Env, c.env...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	return cmd
}

// start runs `start` as containerd does, reading stdout and stderr to their end.
func (c *caller) start(stdin []byte, args ...string) []byte {
	c.t.Helper()
	args = append([]string{"-namespace", "ns", "-address", "/run/c.sock", "-publish-binary", "/bin/true", "-id", c.id}, args...)
	out, err := c.command(stdin, append(args, "start")...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("start: %v: %s", err, out)
	}
	return out
}

func connect(t *testing.T, address string) *ttrpc.Client {
	t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(address, "unix://"))
	must(t, err)
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	return client
}

func ask(t *testing.T, c *ttrpc.Client, method string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out wrapperspb.StringValue
	must(t, c.Call(ctx, "test", method, wrapperspb.String(""), &out))
	return out.Value
}

func ofWorker(t *testing.T, address string) report {
	t.Helper()
	var r report
	must(t, json.Unmarshal([]byte(ask(t, connect(t, address), "Report")), &r))
	return r
}

const lone = `{"ociVersion":"1.0.2","process":{"args":["sh"]},"annotations":{"other":"x"}}`

func TestStartAnswersInEveryDialect(t *testing.T) {
	options, err := proto.Marshal(&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{0x42, 1, 'x'}})
	must(t, err)
	params := func(id string) []byte {
		dir := filepath.Join(shortDir(t), "from-params")
		b, err := proto.Marshal(&bootstrapapi.BootstrapParams{
			InstanceID: id, Namespace: "ns", LogLevel: bootstrapapi.LogLevel_LOG_LEVEL_DEBUG, ContainerdTtrpcAddress: "/p/ttrpc",
			ContainerdGrpcAddress: "/p/grpc", SocketDir: &dir,
			Extensions: []*bootstrapapi.Extension{{Value: &anypb.Any{TypeUrl: "example.com/what.Ever", Value: []byte{1}}}},
		})
		must(t, err)
		return b
	}
	for name, stdin := range map[string][]byte{"nothing": nil, "empty": {}, "options": options, "another's params": params("b"), "garbage": []byte("{}")} {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t, "a", lone)
			out := string(c.start(stdin))
			if !strings.HasPrefix(out, "unix://"+c.sockets+"/") {
				t.Fatalf("answer %q", out)
			}
			r := ofWorker(t, out)
			if !slices.Contains(r.Env, "TTRPC_ADDRESS=/from/env") || !slices.Contains(r.Env, "GRPC_ADDRESS=/run/c.sock") || !slices.Contains(r.Env, "NAMESPACE=ns") {
				t.Errorf("worker's environment %q", r.Env)
			}
			if r.Welcome.Address != out || r.Welcome.Namespace != "ns" || r.Welcome.Group != "a" {
				t.Errorf("welcome %+v", r.Welcome)
			}
		})
	}
	t.Run("params", func(t *testing.T) {
		c := newCaller(t, "a", lone)
		var result bootstrapapi.BootstrapResult
		must(t, proto.Unmarshal(c.start(params("a")), &result))
		if result.Version != 2 || result.Protocol != "ttrpc" || !strings.Contains(result.Address, "/from-params/") {
			t.Fatalf("answer %+v", &result)
		}
		r := ofWorker(t, result.Address)
		for _, want := range []string{"TTRPC_ADDRESS=/p/ttrpc", "GRPC_ADDRESS=/p/grpc", "PERDURE_DEBUG=1"} {
			if !slices.Contains(r.Env, want) {
				t.Errorf("%s is not in the worker's environment", want)
			}
		}
	})
}

func TestKeeperAsStarted(t *testing.T) {
	c := newCaller(t, "a", lone)
	must(t, unix.Mkfifo(filepath.Join(c.bundle, "log"), 0o600))
	address := string(c.start(nil, "--debug"))
	path := strings.TrimPrefix(address, "unix://")
	if b, err := os.ReadFile(filepath.Join(c.bundle, "address")); err != nil || string(b) != address {
		t.Errorf("address file %q, %v", b, err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if st, err := os.Stat(name); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", name, st.Mode(), err, want)
		}
	}
	r := ofWorker(t, address)
	ours, err := os.ReadFile("/proc/self/oom_score_adj")
	must(t, err)
	score, err := strconv.Atoi(strings.TrimSpace(string(ours)))
	must(t, err)
	if r.OOM != strconv.Itoa(min(score+1, 1000)) {
		t.Errorf("OOM score %s, ours is %d", r.OOM, score)
	}
	keeper := r.Welcome.KeeperPID
	if r.Parent != keeper || r.Session != keeper || r.Dir != "/" || !slices.Contains(r.Env, "PERDURE_DEBUG=1") || !slices.Contains(r.Env, "GOMAXPROCS=2") || len(r.Args) != 2 {
		t.Errorf("worker %+v of keeper %d", r, keeper)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", keeper))
	must(t, err)
	if want := "-namespace\x00ns\x00-id\x00a\x00-address\x00/run/c.sock\x00keeper\x00"; !strings.HasSuffix(string(line), want) {
		t.Errorf("keeper's command line %q", line)
	}
	if sid, err := unix.Getsid(keeper); err != nil || sid != keeper {
		t.Errorf("keeper's session %d, %v", sid, err)
	}
	memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", keeper))
	must(t, err)
	t.Logf("keeper's memory:\n%s", memory)
	if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/2", keeper)); err != nil || target != filepath.Join(c.bundle, "log") {
		t.Errorf("keeper's log is %s, %v", target, err)
	}
	ask(t, connect(t, address), "Leave")
	wait(t, keeper)
	if left, err := os.ReadDir(c.sockets); err != nil || len(left) > 0 {
		t.Errorf("left in the socket directory: %v, %v", left, err)
	}
}

func TestStartsAtOnceShareAKeeper(t *testing.T) {
	c := newCaller(t, "a", lone)
	const n = 8
	answers := make(chan string, n)
	for range n {
		cmd := c.command(nil, "-namespace", "ns", "-address", "/run/c.sock", "-id", "a", "start")
		go func() {
			out, err := cmd.CombinedOutput()
			answers <- fmt.Sprint(string(out), err)
		}()
	}
	first := <-answers
	for range n - 1 {
		if got := <-answers; got != first {
			t.Errorf("answers %q and %q", first, got)
		}
	}
	ofWorker(t, strings.TrimSuffix(first, "<nil>"))
	keepers := 0
	for _, pid := range children(t, os.Getpid()) {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.HasSuffix(line, []byte("\x00keeper\x00")) {
			keepers++
		}
	}
	if keepers != 1 {
		t.Errorf("%d keepers", keepers)
	}
}

func TestGroups(t *testing.T) {
	pod := newCaller(t, "sandbox", `{"annotations":{"io.kubernetes.cri.sandbox-id":"sandbox"}}`)
	member := newCaller(t, "member", `{"annotations":{"io.kubernetes.cri.sandbox-id":"sandbox"}}`)
	stranger := newCaller(t, "stranger", `{"annotations":{"io.kubernetes.cri.sandbox-id":"sandbox","io.containerd.runc.v2.group":"own"}}`)
	member.sockets, stranger.sockets = pod.sockets, pod.sockets
	address := string(pod.start(nil))
	if got := string(member.start(nil)); got != address {
		t.Errorf("member got %s, its sandbox %s", got, address)
	}
	if got := string(stranger.start(nil)); got == address {
		t.Error("a group of its own got the sandbox's keeper")
	} else if r := ofWorker(t, got); r.Welcome.Group != "own" {
		t.Errorf("group %q", r.Welcome.Group)
	}
	// Another daemon's container of the same name is another one.
	out, err := pod.command(nil, "-namespace", "ns", "-address", "/run/other.sock", "-id", "sandbox", "start").Output()
	must(t, err)
	if string(out) == address {
		t.Error("two daemons share a keeper")
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	c := newCaller(t, "a", lone)
	address := string(c.start(nil))
	first := ofWorker(t, address).Welcome.KeeperPID
	must(t, unix.Kill(first, unix.SIGKILL))
	wait(t, first)
	if again := string(c.start(nil)); again != address {
		t.Errorf("address %s, then %s", address, again)
	}
	if second := ofWorker(t, address).Welcome.KeeperPID; second == first {
		t.Error("no other keeper")
	}
}

// A keeper that lives but cannot be reached keeps its lock, and gets no rival.
func TestUnreachableKeeperIsNotReplaced(t *testing.T) {
	c := newCaller(t, "a", lone)
	address := string(c.start(nil))
	path := strings.TrimPrefix(address, "unix://")
	ofWorker(t, address)
	must(t, os.Rename(path, path+".away"))
	out, err := c.command(nil, "-namespace", "ns", "-address", "/run/c.sock", "-id", "a", "start").CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("does not listen")) {
		t.Errorf("start beside a keeper without its socket: %s, %v", out, err)
	}
	if dead, err := rendezvous.Dead(path); dead || err != nil {
		t.Errorf("the keeper's lock was taken from it: %v", err)
	}
	must(t, os.Rename(path+".away", path))
	if again := string(c.start(nil)); again != address {
		t.Errorf("address %s, then %s", address, again)
	}
}

func TestStartDoesNotWaitForAnInputThatStaysOpen(t *testing.T) {
	c := newCaller(t, "a", lone)
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	defer r.Close()
	cmd := c.command(nil, "-namespace", "ns", "-id", "a", "start")
	cmd.Stdin = r
	if out, err := cmd.Output(); err != nil || !bytes.HasPrefix(out, []byte("unix://")) {
		t.Errorf("open pipe: %q, %v", out, err)
	}
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer terminal.Close()
	cmd = c.command(nil, "-namespace", "ns", "-id", "a", "start")
	cmd.Stdin = terminal
	if out, err := cmd.Output(); err != nil || !bytes.HasPrefix(out, []byte("unix://")) {
		t.Errorf("terminal: %q, %v", out, err)
	}
}

func TestMistakesAreSaidInOneLine(t *testing.T) {
	long := strings.Repeat("x", 77)
	ok := []string{"-namespace", "ns", "-id", "a"}
	for _, c := range []struct {
		args []string
		spec string
		want string
	}{
		{[]string{"-id", "a", "start"}, lone, "-namespace is missing"},
		{[]string{"-namespace", "ns", "start"}, lone, "-id is missing"},
		{[]string{"-namespace", "ns", "-id", "../a", "start"}, lone, "no identifier"},
		{[]string{"-namespace", "ns", "-id", "a/b", "delete"}, lone, "no identifier"},
		{[]string{"-namespace", "n s", "-id", "a", "start"}, lone, "no identifier"},
		{[]string{"-namespace", "ns", "-id", "a..b", "start"}, lone, "no identifier"},
		{[]string{"-namespace", "ns", "-id", long, "start"}, lone, "at most 76"},
		{[]string{"-nonsense", "start"}, lone, "-nonsense"},
		{ok, lone, "action is missing"},
		{append(ok, "stop"), lone, `unknown action "stop"`},
		{append(ok, "start"), "", "config.json"},
		{append(ok, "start"), "{", "config.json"},
		{append(ok, "keeper"), lone, "keeper"},
	} {
		caller := newCaller(t, "a", c.spec)
		cmd := caller.command(nil, c.args...)
		var out, failure bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &failure
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || out.Len() > 0 || strings.Count(failure.String(), "\n") != 1 || !strings.Contains(failure.String(), c.want) {
			t.Errorf("%q: %v, stdout %q, stderr %q; want %q", c.args, err, &out, &failure, c.want)
		}
		if left, _ := os.ReadDir(caller.sockets); len(left) > 0 {
			t.Errorf("%q left %v", c.args, left)
		}
		if _, err := os.Stat(filepath.Join(caller.bundle, "address")); err == nil {
			t.Errorf("%q left an address", c.args)
		}
	}
}

func TestFailedStartLeavesNothing(t *testing.T) {
	c := newCaller(t, "a", lone)
	c.env = []string{"PERDURE_SOCKET_DIR=/" + strings.Repeat("long/", 20)}
	if out, err := c.command(nil, "-namespace", "ns", "-id", "a", "start").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("at most 106")) {
		t.Errorf("%s, %v", out, err)
	}
	c.env = nil
	must(t, os.Mkdir(filepath.Join(c.bundle, "address"), 0o700)) // in the way of the address file
	if out, err := c.command(nil, "-namespace", "ns", "-id", "a", "start").CombinedOutput(); err == nil {
		t.Errorf("started: %s", out)
	}
	if left, err := os.ReadDir(c.sockets); err != nil || len(left) > 0 {
		t.Errorf("left in the socket directory: %v, %v", left, err)
	}
	must(t, os.Chmod(c.sockets, 0o777))
	if out, err := c.command(nil, "-namespace", "ns", "-id", "a", "start").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("writable by user")) {
		t.Errorf("socket directory open to all: %s, %v", out, err)
	}
}

func TestHandOver(t *testing.T) {
	c := newCaller(t, "a", "")
	args := []string{"-namespace", "ns", "-address", "/c", "-id", "a", "-bundle", "/gone", "-debug", "delete"}
	if out, err := c.command(nil, args...).Output(); err != nil || string(out) != "cleanup "+strings.Join(args, " ") {
		t.Errorf("delete: %q, %v", out, err)
	}
	if out, err := c.command(nil, "-info").Output(); err != nil || string(out) != "info -info" {
		t.Errorf("-info: %q, %v", out, err)
	}
	out, err := c.command(nil, "-v").Output()
	if err != nil || !bytes.HasPrefix(out, []byte(name+":\n  Version:  dev\n  Revision: ")) || !bytes.Contains(out, []byte("\n  Go version: go1.")) {
		t.Errorf("-v: %q, %v", out, err)
	}
}

func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	must(t, err)
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "golang.org/x/sys/") && !strings.HasPrefix(path, "perdure/recovery/keeper") && path != "perdure/internal/crash" && path != "perdure/cmd/"+name {
			t.Errorf("the shim imports %s: it may import the standard library and golang.org/x/sys", path)
		}
	}
	out, err = exec.Command("go", "list", "-deps", ".").Output()
	must(t, err)
	for _, heavy := range []string{"net", "os/exec", "net/http"} {
		if slices.Contains(strings.Fields(string(out)), heavy) {
			t.Errorf("the shim imports %s, which costs every pod memory", heavy)
		}
	}
}

func FuzzStdin(f *testing.F) {
	b, _ := proto.Marshal(&bootstrapapi.BootstrapParams{InstanceID: "a", Namespace: "ns", LogLevel: -8})
	f.Add(b)
	b, _ = proto.Marshal(&anypb.Any{TypeUrl: "t", Value: []byte("v")})
	f.Add(b)
	f.Fuzz(func(t *testing.T, stdin []byte) {
		got := sniff(stdin, "a", "ns")
		var want bootstrapapi.BootstrapParams
		_, _ = shimCgroup(slices.DeleteFunc(got.options, func(m message) bool { return m.name == genericOptions }))
		if proto.Unmarshal(stdin, &want) != nil || !got.params {
			return
		}
		if want.InstanceID != "a" || want.Namespace != "ns" || want.ContainerdGrpcAddress != got.grpc ||
			want.ContainerdTtrpcAddress != got.ttrpc || want.GetSocketDir() != got.socketDir || got.debug != (want.LogLevel <= -4) {
			t.Fatalf("%+v, protobuf says %+v", got, &want)
		}
	})
}

func wait(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	defer unix.Close(fd)
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); err != nil || n == 0 {
		t.Fatalf("waited for the end of %d: %v", pid, err)
	}
}

// noChildren kills, by pid, what the test started and what that left behind.
func noChildren(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		for _, pid := range children(t, os.Getpid()) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if _, err := unix.Wait4(-1, nil, 0, nil); errors.Is(err, unix.ECHILD) {
			return
		}
	}
	t.Fatalf("children are left: %v", children(t, os.Getpid()))
}

func children(t *testing.T, parent int) []int {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent))
	must(t, err)
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
