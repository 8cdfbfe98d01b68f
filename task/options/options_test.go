package options

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func encode(t *testing.T, m proto.Message) *anypb.Any {
	t.Helper()
	value, err := proto.Marshal(m)
	must(t, err)
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}
}

// everything is every choice there is, with runc's options alone and as a
// document adds to them.
var everything = Options{
	Binary: "/usr/bin/crun", Root: "/run/x", SystemdCgroup: true, NoPivotRoot: true, NoNewKeyring: true, IoUID: 5, IoGID: 6,
	CriuImagePath: "/i", CriuWorkPath: "/w", ShimCgroup: "/shims",
}

func TestRuncOptions(t *testing.T) {
	given := encode(t, &options.Options{
		BinaryName: "/usr/bin/crun", Root: "/run/x", SystemdCgroup: true, NoPivotRoot: true, NoNewKeyring: true, IoUid: 5, IoGid: 6,
		CriuImagePath: "/i", CriuWorkPath: "/w", ShimCgroup: "/shims",
	})
	given.Value = append(given.Value, "\x62\x01x\x68\x03"...) // task_api_address and task_api_version, which are deprecated
	got, err := Read(given)
	if err != nil || got != everything {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestEveryRuncOptionIsKnown: a field that a newer containerd/api adds must be
// looked at here.
func TestEveryRuncOptionIsKnown(t *testing.T) {
	known := []string{
		"no_pivot_root", "no_new_keyring", "shim_cgroup", "io_uid", "io_gid", "binary_name", "root", "systemd_cgroup",
		"criu_image_path", "criu_work_path", "task_api_address", "task_api_version",
	}
	fields := (&options.Options{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if name := string(fields.Get(i).Name()); i >= len(known) || name != known[i] {
			t.Errorf("%s is not known", name)
		}
	}
}

func TestNoOptions(t *testing.T) {
	for _, none := range []*anypb.Any{nil, {}, encode(t, &options.Options{}), encode(t, &runtimeoptions.Options{}), encode(t, &runtimeoptions.Options{ConfigBody: []byte("# nothing\n")})} {
		if got, err := Read(none); err != nil || got != (Options{}) {
			t.Errorf("%v: got %+v, %v", none, got, err)
		}
	}
}

const (
	snake = `
no_pivot_root = true
no_new_keyring = true
shim_cgroup = "/shims"
io_uid = 5
io_gid = 6
binary_name = "/usr/bin/crun"
root = "/run/x"
systemd_cgroup = true
criu_image_path = "/i"
criu_work_path = "/w"
log_level = "debug"
log_path = "/var/log/x"
`
	camel = `
NoPivotRoot = true
NoNewKeyring = true
ShimCgroup = "/shims"
IoUid = 5
IoGid = 6
BinaryName = "/usr/bin/crun"
Root = "/run/x"
SystemdCgroup = true
CriuImagePath = "/i"
CriuWorkPath = "/w"
LogLevel = "debug"
LogPath = "/var/log/x"
TypeUrl = "containerd.runc.v1.Options"
ConfigPath = ""
`
)

func TestDocument(t *testing.T) {
	want := everything
	want.LogLevel, want.LogPath = "debug", "/var/log/x"
	path := filepath.Join(t.TempDir(), "config.toml")
	for name, text := range map[string]string{"as in the protocol": snake, "as in containerd's configuration": camel} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		for from, o := range map[string]*runtimeoptions.Options{
			"file": {ConfigPath: path, ConfigBody: []byte("not = 'looked at'"), TypeUrl: "io.containerd.perdure.v2.options"},
			"body": {ConfigBody: []byte(text)},
		} {
			if got, err := Read(encode(t, o)); err != nil || got != want {
				t.Errorf("%s, %s: got %+v, %v", name, from, got, err)
			}
		}
	}
}

// TestMistakes: each is an error of one line that names the place.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bad.toml")
	must(t, os.WriteFile(file, []byte("binary_name = \"runc\"\n\nlog_levle = \"debug\"\n"), 0o600))
	fifo := filepath.Join(dir, "fifo")
	must(t, unix.Mkfifo(fifo, 0o600))
	big := filepath.Join(dir, "big")
	must(t, os.WriteFile(big, make([]byte, maxDocument+1), 0o600))
	body := func(text string) proto.Message { return &runtimeoptions.Options{ConfigBody: []byte(text)} }
	for name, c := range map[string]struct {
		given *anypb.Any
		want  []string
	}{
		"unknown type":        {&anypb.Any{TypeUrl: "example.com/what.Ever"}, []string{"example.com/what.Ever", "runtimeoptions.v1.Options"}},
		"damaged runc":        {&anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{0xff, 0xff}}, []string{"containerd.runc.v1.Options", "decode"}},
		"damaged generic":     {&anypb.Any{TypeUrl: "runtimeoptions.v1.Options", Value: []byte{0xff, 0xff}}, []string{"decode"}},
		"another runtime":     {encode(t, &runtimeoptions.Options{TypeUrl: "io.containerd.runsc.v1.options"}), []string{"runsc", "io.containerd.perdure.v2.options"}},
		"no file":             {encode(t, &runtimeoptions.Options{ConfigPath: "/no/such/file"}), []string{"config_path", "/no/such/file", "no such file"}},
		"a relative path":     {encode(t, &runtimeoptions.Options{ConfigPath: "config.toml"}), []string{"config_path", `"config.toml"`, "absolute"}},
		"a directory":         {encode(t, &runtimeoptions.Options{ConfigPath: dir}), []string{dir, "regular file"}},
		"a fifo":              {encode(t, &runtimeoptions.Options{ConfigPath: fifo}), []string{fifo, "regular file"}},
		"too big":             {encode(t, &runtimeoptions.Options{ConfigPath: big}), []string{big, "more than 1048576 bytes"}},
		"unknown key in file": {encode(t, &runtimeoptions.Options{ConfigPath: file}), []string{file, "line 3", `"log_levle"`}},
		"unknown key":         {encode(t, body("root = '/x'\nfoo = 1")), []string{"config_body", "line 2", `unknown key "foo"`}},
		"unknown table":       {encode(t, body("[runc]\nbinary_name = 'x'")), []string{"line 1", `"runc"`}},
		"number for a switch": {encode(t, body("\nsystemd_cgroup = 1")), []string{"line 2", `"systemd_cgroup"`, "integer", "bool"}},
		"text for a switch":   {encode(t, body("SystemdCgroup = 'yes'")), []string{"line 1", `"SystemdCgroup"`, "string", "bool"}},
		"text for a number":   {encode(t, body("io_uid = 'root'")), []string{"line 1", `"io_uid"`, "string"}},
		"negative id":         {encode(t, body("io_gid = -1")), []string{"line 1", `"io_gid"`, "-1"}},
		"id too big":          {encode(t, body("io_gid = 4294967296")), []string{"line 1", `"io_gid"`, "4294967296"}},
		"twice":               {encode(t, body("root = '/a'\nroot = '/b'")), []string{"line 2", "root", "already"}},
		"twice, differently":  {encode(t, body("binary_name = 'a'\nBinaryName = 'b'")), []string{"binary_name", "BinaryName", "once"}},
		"no value":            {encode(t, body("root = \n")), []string{"line 1"}},
		"no text":             {encode(t, body("\x00\xff")), []string{"line 1"}},
		"nested":              {encode(t, body("ConfigPath = '/etc/x.toml'")), []string{"ConfigPath", "/etc/x.toml"}},
		"of another":          {encode(t, body("TypeUrl = 'what.Ever'")), []string{"TypeUrl", "what.Ever"}},
		"unknown level":       {encode(t, body("log_level = 'loud'")), []string{`log_level "loud"`, "debug"}},
		"relative log":        {encode(t, body("log_path = 'x.log'")), []string{`log_path "x.log"`, "absolute"}},
		"relative root":       {encode(t, &options.Options{Root: "run"}), []string{`root "run"`, "absolute"}},
		"relative binary":     {encode(t, &options.Options{BinaryName: "./runc"}), []string{`binary_name "./runc"`, "absolute"}},
	} {
		got, err := Read(c.given)
		if err == nil || got != (Options{}) {
			t.Errorf("%s: got %+v, %v; want an error", name, got, err)
			continue
		}
		for _, want := range c.want {
			if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "\n") || strings.Contains(text, "struct") {
				t.Errorf("%s: %q; want %q in one line", name, text, want)
			}
		}
	}
}

// TestJournaledNames: an older journal's options mean the same for ever.
func TestJournaledNames(t *testing.T) {
	all := everything
	all.LogLevel, all.LogPath = "debug", "/l"
	got, err := json.Marshal(all)
	must(t, err)
	const want = `{"binary":"/usr/bin/crun","root":"/run/x","systemdCgroup":true,"noPivotRoot":true,"noNewKeyring":true,"ioUID":5,"ioGID":6,` +
		`"criuImagePath":"/i","criuWorkPath":"/w","shimCgroup":"/shims","logLevel":"debug","logPath":"/l"}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzDocument(f *testing.F) {
	for _, seed := range []string{snake, camel, "a=1", "[root]", "io_uid = 1e3", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parse("fuzz", text)
		if err != nil && (o != Options{} || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%+v, %q", o, err)
		}
	})
}

// TestBundle: what delete needs is in the bundle, in the words of containerd's own
// shim, and is gone when it is taken back.
func TestBundle(t *testing.T) {
	bundle := t.TempDir()
	for _, o := range []Options{{}, {Binary: "/usr/bin/crun", Root: "/run/x", SystemdCgroup: true}} {
		must(t, o.Save(bundle))
		if got, err := Load(bundle); err != nil || got != o {
			t.Errorf("got %+v, %v; want %+v", got, err, o)
		}
	}
	for name, want := range map[string]string{"options.json": `{"binary_name":"/usr/bin/crun","root":"/run/x","systemd_cgroup":true}`, "runtime": "/usr/bin/crun"} {
		if text, err := os.ReadFile(filepath.Join(bundle, name)); err != nil || string(text) != want {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(bundle, "options.json"), []byte("{"), 0o600))
	if _, err := Load(bundle); err == nil || !strings.Contains(err.Error(), bundle) {
		t.Errorf("half a file: %v", err)
	}
	Remove(bundle)
	if left, err := os.ReadDir(bundle); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := everything.Save(filepath.Join(bundle, "gone")); err == nil {
		t.Error("saved into a bundle that is not there")
	}
}
