package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/harness"
)

// hangingBundle is a bundle like that of a container which runs, with a hook that waits at a gate.
func hangingBundle(t *testing.T, h *harness.Harness, like *harness.Container, gates *harness.Gates) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.Bundle(h.Namespace, like.ID), "config.json"))
	harness.Check(t, err)
	var spec specs.Spec
	harness.Check(t, json.Unmarshal(text, &spec))
	spec.Linux.CgroupsPath = "/" + h.Namespace + "/slow"
	spec.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{
		Path: "/bin/sh", Args: []string{"sh", "-c", "read go <" + gates.Path("hook")},
	}}}
	bundle := t.TempDir()
	root := filepath.Join(bundle, "rootfs")
	harness.Check(t, os.Mkdir(root, 0o755))
	text, err = json.Marshal(spec)
	harness.Check(t, err)
	harness.Check(t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600))
	return bundle
}
