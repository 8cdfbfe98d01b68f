package cases

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mustHave are the cases that issue 4 asks for.
var mustHave = []string{"1", "2", "3", "4", "7", "8", "15", "16"}

// The table of doc.go names tests that exist, and has all of the cases.
func TestTheTableOfCasesIsTrue(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]int{} // by case
	number := ""
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^//\tcase (\d+): `).FindStringSubmatch(line); m != nil {
			number = m[1]
			tests[number] = 0
		}
		m := regexp.MustCompile(`^//\t    (\w+)\.(Test\w+)$`).FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		tests[number]++
		dir := filepath.Join("..", m[1])
		if m[1] == "keeper" {
			dir = "../../recovery/keeper"
		}
		if !testsOf(t, dir)[m[2]] {
			t.Errorf("case %s: there is no test %s in %s", number, m[2], dir)
		}
	}
	for _, number := range mustHave {
		if tests[number] == 0 {
			t.Errorf("no test is named for case %s", number)
		}
	}
}

// testsOf lists the tests of a package by name.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil {
				tests[f.Name.Name] = true
			}
		}
	}
	return tests
}
