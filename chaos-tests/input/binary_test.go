package input

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
)

const configJSON = "config.json"

// What containerd may call the shim with, and must not.
func TestBadCommandLines(t *testing.T) {
	harness.NeedsPerdure(t)
	with := func(more ...string) []string { return append([]string{"-namespace", "ns", "-address", "/x"}, more...) }
	for _, test := range []struct {
		name string
		args []string
		spec string // config.json in the working directory, "": none
		want string // what the error must name
	}{
		{"unknown flag", with("-id", "a", "-nonsense", "start"), "{}", "nonsense"},
		{"flag without its value", with("start", "-id")[:4:4], "{}", "action"},
		{"no action", with("-id", "a"), "{}", "action"},
		{"unknown action", with("-id", "a", "restart"), "{}", "restart"},
		{"start without a namespace", []string{"-id", "a", "start"}, "{}", "-namespace"},
		{"delete without a namespace", []string{"-id", "a", "delete"}, "{}", "-namespace"},
		{"start without an id", with("start"), "{}", "-id"},
		{"start of an id with a separator", with("-id", "a/b", "start"), "{}", `"a/b"`},
		{"start of the parent", with("-id", "..", "start"), "{}", `".."`},
		{"delete of an id with a separator", with("-id", "../b", "delete"), "{}", `"../b"`},
		{"a namespace with a separator", []string{"-namespace", "n/s", "-id", "a", "start"}, "{}", `"n/s"`},
		{"an id that is too long", with("-id", strings.Repeat("x", 77), "start"), "{}", "77 characters"},
		{"an id of two lines", with("-id", "a\n", "start"), "{}", `"a\n"`},
		{"delete of an id that is too long", with("-id", strings.Repeat("x", 77), "delete"), "{}", "77 characters"},
		{"a namespace that is too long", []string{"-namespace", strings.Repeat("n", 77), "-id", "a", "start"}, "{}", "77 characters"},
		{"a group of two lines", with("-id", "a", "start"), `{"annotations": {"io.containerd.runc.v2.group": "g\nh"}}`, `"g\nh"`},
		{"a group with an end in it", with("-id", "a", "start"), `{"annotations": {"io.kubernetes.cri.sandbox-id": "g\u0000h"}}`, `"g\x00h"`},
		{"a group that is too long", with("-id", "a", "start"), `{"annotations": {"io.kubernetes.cri.sandbox-id": "` + strings.Repeat("g", 1025) + `"}}`, "1025 bytes"},
		{"a bundle without config.json", with("-id", "a", "start"), "", configJSON},
		{"a bundle with half a config.json", with("-id", "a", "start"), `{"annotations": {`, configJSON},
	} {
		t.Run(test.name, func(t *testing.T) { refuse(t, test.args, test.spec, test.want) })
	}
}

// refuse runs the shim and expects an error of one line, and nothing else.
func refuse(t *testing.T, args []string, spec, want string) {
	bundle, sockets := t.TempDir(), filepath.Join(t.TempDir(), "s")
	if spec != "" {
		harness.Check(t, os.WriteFile(filepath.Join(bundle, configJSON), []byte(spec), 0o600))
	}
	bin, err := daemon.Bin()
	harness.Check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "containerd-shim-perdure-v2"), args...)
	cmd.Dir, cmd.Env = bundle, append(os.Environ(), "PERDURE_SOCKET_DIR="+sockets)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		t.Errorf("it ended with %v, want an exit code", err)
	}
	if stdout.Len() > 0 {
		t.Errorf("stdout, which is the answer, says %q", stdout.String())
	}
	if said := stderr.String(); !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
		t.Errorf("stderr says %q, want one line with %s", said, want)
	}
	if left := list(t, bundle); len(left) > 1 || len(left) == 1 && left[0] != configJSON {
		t.Errorf("the bundle now holds %v", left)
	}
	if left := list(t, sockets); len(left) > 0 {
		t.Errorf("the socket directory now holds %v", left)
	}
}

// list returns the names in a directory; one that is not there has none.
func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}
