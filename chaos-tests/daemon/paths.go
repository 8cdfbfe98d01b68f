// Package daemon runs a private containerd: own root, state, sockets and
// configuration under one temporary directory, nothing of the host's touched.
package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// Runtime returns the runtime that is tested: perdure, unless
// PERDURE_TEST_RUNTIME names another (io.containerd.runc.v2 proves that the
// tests themselves are right).
func Runtime() string {
	if name := os.Getenv("PERDURE_TEST_RUNTIME"); name != "" {
		return name
	}
	return "io.containerd.perdure.v2"
}

// Tree returns the top directory of the source tree that this program is run
// in.
func Tree() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "tools", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside perdure's source tree: run it there")
		}
		dir = parent
	}
}

// Bin returns the directory of perdure's binaries: PERDURE_BIN, else bin/ of
// the source tree.
func Bin() (string, error) {
	if dir := os.Getenv("PERDURE_BIN"); dir != "" {
		return dir, nil
	}
	tree, err := Tree()
	if err != nil {
		return "", err
	}
	return filepath.Join(tree, "bin"), nil
}

var containerdVersion = regexp.MustCompile(`(?m)^\s*github\.com/containerd/containerd/v2 (v\S+)`)

// Peers returns the directory with the pinned containerd, ctr and stock shim,
// as scripts/setup builds them.
func Peers() (string, error) {
	if dir := os.Getenv("PERDURE_PEERS"); dir != "" {
		return dir, nil
	}
	tree, err := Tree()
	if err != nil {
		return "", err
	}
	mod, err := os.ReadFile(filepath.Join(tree, "tools", "go.mod"))
	if err != nil {
		return "", err
	}
	version := containerdVersion.FindSubmatch(mod)
	if version == nil {
		return "", errors.New("tools/go.mod requires no containerd")
	}
	name := "containerd-" + string(version[1])
	for _, cache := range caches() {
		dir := filepath.Join(cache, name)
		if _, err := os.Stat(filepath.Join(dir, "containerd")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s is in none of %v: run scripts/setup", name, caches())
}

// caches lists where scripts/setup may have put what it built.
func caches() []string {
	if dir := os.Getenv("PERDURE_CACHE"); dir != "" {
		return []string{dir}
	}
	dirs := []string{"/var/cache/perdure"}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".cache", "perdure"))
	}
	return dirs
}
