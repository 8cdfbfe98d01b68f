package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	bootstrapapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// shimCgroupMain is a fake `perdure shim-cgroup`: the document is the answer, or
// the error after an exclamation mark.
func shimCgroupMain() int {
	in, err := io.ReadAll(os.Stdin)
	var given anypb.Any
	var o runtimeoptions.Options
	if err = errors.Join(err, proto.Unmarshal(in, &given)); err == nil {
		err = given.UnmarshalTo(&o)
	}
	if err != nil || len(o.ConfigBody) == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	if string(o.ConfigBody) == "hang" {
		select {}
	}
	if text, bad := strings.CutPrefix(string(o.ConfigBody), "!"); bad {
		fmt.Fprintf(os.Stderr, "perdure shim-cgroup: %s\n", text)
		return 1
	}
	fmt.Println(string(o.ConfigBody))
	return 0
}

// inEveryDialect is how a caller can give options to start.
func inEveryDialect(t *testing.T, o proto.Message) map[string][]byte {
	t.Helper()
	value, err := proto.Marshal(o)
	must(t, err)
	given := &anypb.Any{TypeUrl: string(o.ProtoReflect().Descriptor().FullName()), Value: value}
	result := map[string][]byte{}
	for name, m := range map[string]proto.Message{
		"an Any":                    given,
		"an Any with a longer name": &anypb.Any{TypeUrl: "type.googleapis.com/" + given.TypeUrl, Value: value},
		"BootstrapParams": &bootstrapapi.BootstrapParams{InstanceID: "a", Namespace: "ns", Extensions: []*bootstrapapi.Extension{
			{Value: &anypb.Any{TypeUrl: "example.com/what.Ever", Value: []byte{0xff}}}, {}, {Value: given},
		}},
	} {
		result[name], err = proto.Marshal(m)
		must(t, err)
	}
	return result
}

func TestShimCgroupIsFound(t *testing.T) {
	self, err := os.Executable()
	must(t, err)
	t.Setenv("TEST_SHIM", "1")
	t.Setenv("PERDURE_WORKER", self)
	for _, c := range []struct {
		options proto.Message
		want    string
		failure string
	}{
		{&options.Options{BinaryName: "runc", ShimCgroup: "/a/b", Root: "/r"}, "/a/b", ""},
		{&options.Options{BinaryName: "runc"}, "", ""},
		{&runtimeoptions.Options{}, "", ""},
		{&runtimeoptions.Options{TypeUrl: "x", ConfigBody: []byte("/from/document")}, "/from/document", ""},
		{&runtimeoptions.Options{ConfigBody: []byte("!line 3: unknown key")}, "", "line 3: unknown key"},
	} {
		for name, stdin := range inEveryDialect(t, c.options) {
			got, err := shimCgroup(sniff(stdin, "a", "ns").options)
			if got != c.want || (err == nil) != (c.failure == "") || err != nil && err.Error() != c.failure {
				t.Errorf("%s of %v: %q, %v; want %q, %q", name, c.options, got, err, c.want, c.failure)
			}
		}
	}
	for _, name := range []string{runcOptions, genericOptions} {
		if _, err := shimCgroup([]message{{name, "\xff\xff"}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("damaged %s: %v", name, err)
		}
	}
	askWait = 100 * time.Millisecond
	defer func() { askWait = 2 * time.Second }()
	if _, err := shimCgroup([]message{{genericOptions, "\x1a\x04hang"}}); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("a worker's program that hangs: %v", err)
	}
	t.Setenv("PERDURE_WORKER", "/no/such/perdure")
	if _, err := shimCgroup([]message{{genericOptions, "\x1a\x01x"}}); err == nil || !strings.Contains(err.Error(), "/no/such/perdure") {
		t.Errorf("without the worker's program: %v", err)
	}
}

// newCgroup makes a cgroup in every hierarchy that start looks at.
func newCgroup(t *testing.T) (name string, dirs []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make cgroups")
	}
	name = fmt.Sprintf("/perdure-test-%d", os.Getpid())
	hierarchies, err := cgroupHierarchies()
	must(t, err)
	if len(hierarchies) == 0 {
		t.Skip("no cgroup hierarchy is mounted")
	}
	for _, hierarchy := range hierarchies {
		dir := filepath.Join(hierarchy, name)
		if filepath.Base(hierarchy) == "cpuset" {
			continue // nobody can be in a new one before it is set up; start passes it over
		}
		must(t, os.Mkdir(dir, 0o755))
		t.Cleanup(func() { must(t, os.Remove(dir)) })
		dirs = append(dirs, dir)
	}
	return name, dirs
}

func members(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	must(t, err)
	return strings.Fields(string(text))
}

func TestShimCgroup(t *testing.T) {
	name, dirs := newCgroup(t)
	for dialect, stdin := range inEveryDialect(t, &options.Options{ShimCgroup: name}) {
		t.Run(dialect, func(t *testing.T) {
			c := newCaller(t, "a", lone)
			answer := string(c.start(stdin))
			address := answer[strings.Index(answer, "unix://"):]
			address = address[:strings.Index(address, c.sockets)+len(c.sockets)+1+64]
			r := ofWorker(t, address)
			for _, dir := range dirs {
				for what, pid := range map[string]int{"keeper": r.Welcome.KeeperPID, "worker": r.PID} {
					if all := members(t, dir); !slices.Contains(all, strconv.Itoa(pid)) {
						t.Errorf("%s %d is not in %s: %v", what, pid, dir, all)
					}
				}
			}
			if !strings.Contains(r.Cgroups, ":"+name+"\n") {
				t.Errorf("the worker's cgroups are %s", r.Cgroups)
			}
		})
	}
}

func TestBadShimCgroups(t *testing.T) {
	encode := func(group string) []byte {
		return inEveryDialect(t, &options.Options{ShimCgroup: group})["an Any"]
	}
	for group, word := range map[string]string{
		"/no/such/cgroup": "does not exist", "../escape": "no path of a cgroup", "/a/../b": "no path of a cgroup",
		"/sys/fs/cgroup/x": "no path of a cgroup", "/a//b": "no path of a cgroup", "/a/": "no path of a cgroup",
	} {
		newCaller(t, "a", lone).refused(encode(group), "container a", "shim_cgroup", group, word)
	}
	damaged, err := proto.Marshal(&anypb.Any{TypeUrl: runcOptions, Value: []byte{0xff}})
	must(t, err)
	newCaller(t, "a", lone).refused(damaged, "container a", runcOptions)
	document, err := proto.Marshal(&anypb.Any{TypeUrl: genericOptions, Value: []byte("\x1a\x05!oops")})
	must(t, err)
	newCaller(t, "a", lone).refused(document, "container a: oops")
}

// TestCoreScheduling: keeper and worker share a cookie that is not the caller's, or
// start says what is missing.
func TestCoreScheduling(t *testing.T) {
	c := newCaller(t, "a", lone)
	c.env = []string{"SCHED_CORE=1"}
	ours, err := cookie(0)
	if err != nil {
		t.Logf("this machine has no core scheduling (%v): what is tested is how start says so", err)
		c.refused(nil, "container a", "SCHED_CORE", "CONFIG_SCHED_CORE")
		return
	}
	r := ofWorker(t, string(c.start(nil)))
	keeper, err := cookie(r.Welcome.KeeperPID)
	must(t, err)
	worker, err := cookie(r.PID)
	must(t, err)
	if keeper == ours || keeper == 0 || worker != keeper {
		t.Errorf("cookies: ours %x, the keeper's %x, the worker's %x", ours, keeper, worker)
	}
}

func cookie(pid int) (value uint64, err error) {
	err = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_GET, uintptr(pid), unix.PR_SCHED_CORE_SCOPE_THREAD, uintptr(unsafe.Pointer(&value)))
	return value, err
}

func TestGroupNames(t *testing.T) {
	withGroup := func(group string) string {
		spec, err := json.Marshal(map[string]any{"annotations": map[string]string{"io.containerd.runc.v2.group": group}})
		must(t, err)
		return string(spec)
	}
	for _, group := range []string{"a/b", "../../etc", "größe", "two words", strings.Repeat("x", 1024)} {
		c := newCaller(t, "a", withGroup(group))
		if r := ofWorker(t, string(c.start(nil))); r.Welcome.Group != group {
			t.Errorf("%q became %q", group, r.Welcome.Group)
		}
	}
	for _, group := range []string{"a\nb", "a\x00b", "\x1b[31m", strings.Repeat("x", 1025)} {
		newCaller(t, "a", withGroup(group)).refused(nil, "container a", "io.containerd.runc.v2.group")
	}
}

// refused runs a start that must fail with one line that has the words in it, and
// leave nothing.
func (c *caller) refused(stdin []byte, words ...string) {
	c.t.Helper()
	cmd := c.command(stdin, "-namespace", "ns", "-address", "/run/c.sock", "-id", c.id, "start")
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err == nil || out.Len() > 0 || strings.Count(failure.String(), "\n") != 1 {
		c.t.Errorf("%v, stdout %q, stderr %q; want one line of error", err, &out, &failure)
	}
	for _, word := range words {
		if !strings.Contains(failure.String(), word) {
			c.t.Errorf("stderr %q, want %q in it", &failure, word)
		}
	}
	if left, _ := os.ReadDir(c.sockets); len(left) > 0 {
		c.t.Errorf("left in the socket directory: %v", left)
	}
	if _, err := os.Stat(filepath.Join(c.bundle, "address")); err == nil {
		c.t.Error("an address is left")
	}
}
