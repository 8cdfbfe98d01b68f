package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadSpec(t *testing.T) {
	bundle := t.TempDir()
	for text, want := range map[string]Spec{
		`{"linux":{"namespaces":[{"type":"pid"}]}}`:                                          {PrivatePIDNamespace: true},
		`{"linux":{"namespaces":[{"type":"pid","path":"/proc/1/ns/pid"},{"type":"mount"}]}}`: {},
		`{}`: {},
	} {
		must(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte(text), 0o600))
		got, err := ReadSpec(bundle)
		must(t, err)
		if *got != want {
			t.Errorf("%s: got %+v", text, *got)
		}
	}
	must(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte("{"), 0o600))
	if _, err := ReadSpec(bundle); err == nil || !strings.Contains(err.Error(), bundle) {
		t.Errorf("a broken spec: %v", err)
	}
}

func TestCheckProcess(t *testing.T) {
	for text, wrong := range map[string]string{
		"":                               "has no process",
		"{":                              "not an OCI process",
		"{}":                             "no arguments",
		`{"args":"one"}`:                 "not an OCI process",
		`{"args":["a"]}`:                 "",
		`{"args":["a"],"terminal":true}`: "", // what counts is the request's flag
	} {
		got, err := CheckProcess([]byte(text))
		switch {
		case wrong == "" && (err != nil || string(got) != text):
			t.Errorf("%s: %s, %v", text, got, err)
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)):
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
	}
}

func mountsBelow(t *testing.T, path string) (count int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	return strings.Count(string(text), " "+path)
}

func TestMountRootfs(t *testing.T) {
	requireRoot(t)
	bundle, lower := t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		if n := mountsBelow(t, bundle); n > 0 {
			t.Errorf("%d mounts are left", n)
		}
	})
	must(t, os.WriteFile(filepath.Join(lower, "file"), nil, 0o600))
	bind := Mount{Type: "bind", Source: lower, Options: []string{"rbind", "ro"}}
	for range 3 { // as by workers killed after the mount
		must(t, MountRootfs(bundle, []Mount{bind}))
	}
	if n := mountsBelow(t, bundle); n != 1 {
		t.Errorf("%d mounts instead of one", n)
	}
	if err := os.WriteFile(filepath.Join(rootfs(bundle), "new"), nil, 0o600); err == nil {
		t.Error("a read-only mount can be written")
	}
	busy, err := os.Open(filepath.Join(rootfs(bundle), "file"))
	must(t, err)
	defer busy.Close()
	must(t, UnmountRootfs(bundle))
	must(t, UnmountRootfs(bundle))
	err = MountRootfs(bundle, []Mount{bind, {Type: "bind", Source: "/no/such", Options: []string{"rbind"}}})
	if err == nil || !strings.Contains(err.Error(), bundle) {
		t.Errorf("a mount of nothing: %v", err)
	}
	must(t, UnmountRootfs(filepath.Join(bundle, "gone")))
}
