package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
)

// Crun finds crun, for a container's options. crun 1.8.1 refuses cgroups in hybrid mode, so it is shown none of version 2
// where there are both. It is asked for before the harness, whose clean-up needs it.
func Crun(t *testing.T) *options.Options {
	t.Helper()
	path, err := exec.LookPath("crun")
	if err != nil {
		t.Skip("needs crun: apt-get install crun")
	}
	const unified = "/sys/fs/cgroup/unified"
	if _, err := os.Stat(unified); err != nil {
		return &options.Options{BinaryName: path}
	}
	wrapper := filepath.Join(t.TempDir(), "crun")
	script := fmt.Sprintf("#!/bin/sh\nexec unshare -m sh -c 'umount %s; exec %s \"$@\"' crun \"$@\"\n", unified, path)
	Check(t, os.WriteFile(wrapper, []byte(script), 0o755))
	return &options.Options{BinaryName: wrapper}
}

// CrunSpec goes with it: crun 1.8.1 refuses the version that containerd 2.4.2 writes into a spec ("unknown version
// specified"), whatever the shim.
func CrunSpec(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Version = "1.0.2"
	return nil
}
