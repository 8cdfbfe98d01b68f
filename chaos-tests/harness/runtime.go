package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
)

// Runtime is a runtime binary that is runc but for one command: script runs in
// its place, with $runc, the arguments, and a directory $dir to leave marks in.
// It is made before the harness, whose clean-up needs it.
func Runtime(t *testing.T, command, script string) (opts *options.Options, dir string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	Check(t, err)
	dir = t.TempDir()
	path := filepath.Join(dir, "runtime")
	text := fmt.Sprintf("#!/bin/bash\nrunc=%s dir=%s\nif [[ \" $* \" == *\" %s \"* ]]; then\n%s\nfi\nexec $runc \"$@\"\n", runc, dir, command, script)
	Check(t, os.WriteFile(path, []byte(text), 0o755))
	return &options.Options{BinaryName: path}, dir
}
