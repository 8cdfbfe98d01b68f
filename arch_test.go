package perdure

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

type goPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Deps       []string
}

// list runs go list for the product's packages.
func list(t *testing.T, args ...string) map[string]goPackage {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)...).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// TestOnlyImporter: each outside library that carries a decision has one room.
func TestOnlyImporter(t *testing.T) {
	rooms := map[string][]string{
		"go.etcd.io/bbolt":                                  {"perdure/store"},
		"github.com/pelletier/go-toml":                      {"perdure/task/options"},
		"github.com/containerd/go-runc":                     {"perdure/runtime"},
		"github.com/containerd/containerd/api/runtime/task": {"perdure/task", "perdure/cmd/perdure"},
	}
	for path, p := range list(t, "./...") {
		for library, allowed := range rooms {
			uses := slices.ContainsFunc(p.Imports, func(i string) bool { return within(i, library) })
			if uses && !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s, which only %v may", path, library, allowed)
			}
		}
	}
}

// TestDirections: who may know whom inside the product.
func TestDirections(t *testing.T) {
	allowed := map[string][]string{
		"perdure/internal/crash":                 {},
		"perdure/store/lifecycle":                {},
		"perdure/store":                          {"perdure/store/lifecycle"},
		"perdure/runtime":                        {},
		"perdure/recovery":                       {"perdure/store/lifecycle"},
		"perdure/task":                           {"perdure/store", "perdure/store/lifecycle", "perdure/runtime", "perdure/internal/crash", "perdure/recovery/keeper/protocol", "perdure/task/options"},
		"perdure/task/options":                   {},
		"perdure/recovery/keeper/protocol":       {},
		"perdure/recovery/keeper/rendezvous":     {"perdure/recovery/keeper/protocol"},
		"perdure/recovery/keeper/client":         {"perdure/recovery/keeper/protocol"},
		"perdure/recovery/keeper":                {"perdure/recovery/keeper/protocol", "perdure/recovery/keeper/rendezvous", "perdure/internal/crash"},
		"perdure/cmd/containerd-shim-perdure-v2": {"perdure/recovery/keeper", "perdure/recovery/keeper/protocol", "perdure/recovery/keeper/rendezvous", "perdure/internal/crash"},
		"perdure/cmd/perdure":                    nil, // joins everything
		"perdure":                                {},
	}
	for path, p := range list(t, "./...") {
		may, ok := allowed[path]
		if !ok {
			t.Errorf("%s has no place in the layout: see docs/design.md", path)
			continue
		}
		if path == "perdure/cmd/perdure" {
			continue
		}
		for _, i := range p.Imports {
			if within(i, "perdure") && !slices.Contains(may, i) {
				t.Errorf("%s imports %s; it may import %v", path, i, may)
			}
		}
	}
}

// TestSmallImports: the keeper is the standard library and x/sys, the lifecycle
// the standard library alone.
func TestSmallImports(t *testing.T) {
	limits := map[string][]string{
		"./cmd/containerd-shim-perdure-v2": {"perdure/recovery/keeper", "perdure/internal/crash", "perdure/cmd/containerd-shim-perdure-v2", "golang.org/x/sys"},
		"./store/lifecycle":                {"perdure/store/lifecycle"},
	}
	for root, allowed := range limits {
		for path, p := range list(t, "-deps", root) {
			if !p.Standard && !slices.ContainsFunc(allowed, func(a string) bool { return within(path, a) }) {
				t.Errorf("%s depends on %s; it may depend on the standard library and %v", root, path, allowed)
			}
		}
	}
}
