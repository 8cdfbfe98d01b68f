package main

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perdure/chaos-tests/daemon"
)

func tree(t *testing.T) string {
	t.Helper()
	dir, err := daemon.Tree()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEveryMutantFitsTheSource: its text is there once, and what comes of it is Go.
func TestEveryMutantFitsTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.name] {
			t.Errorf("two mutants are called %s", m.name)
		}
		names[m.name] = true
		if m.hurts == "" || strings.ContainsAny(m.hurts, "|\n") {
			t.Errorf("%s: %q does not say in one line whom it hurts", m.name, m.hurts)
		}
		source, err := m.mutate(tree(t))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := format.Source([]byte(source)); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	const least = 40
	if len(names) < least {
		t.Errorf("%d mutants, want %d at least", len(names), least)
	}
}

// TestEveryMutantNamesATest: what catches it is a test that exists.
func TestEveryMutantNamesATest(t *testing.T) {
	for _, m := range mutants() {
		c := m.catcher()
		name, _, _ := strings.Cut(c.test, "/")
		files, err := filepath.Glob(filepath.Join(tree(t), c.dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		}
		if !found {
			t.Errorf("%s: there is no test %q", m.name, m.by)
		}
	}
}

// TestDocument: README.md lists every mutant as it is.
func TestDocument(t *testing.T) {
	have, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != document(mutants()) {
		t.Error("README.md differs from the list: go run ./mutation -update")
	}
}
