package crash

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perdure/internal/crash"
)

var update = flag.Bool("update", false, "write the tables of README.md anew")

const readme = "../README.md"

// TestDocument compares the points that README.md lists with the code's.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- generated: go test ./crash -run TestDocument -update -->\n", "<!-- end -->"
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no generated part", readme)
	}
	want := head + begin + points() + "\n" + positions(t) + end + tail
	if *update {
		if err := os.WriteFile(readme, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s does not list the points that there are: go test ./crash -run TestDocument -update", readme)
	}
}

// points is the table of operations.
func points() string {
	var b strings.Builder
	fmt.Fprintln(&b, "| process | operation | positions (`!`: can be told to fail) |\n|---|---|---|")
	last := ""
	for _, p := range crash.Points() {
		op, position, _ := strings.Cut(p.Name, ".")
		if p.Fails {
			position += "!"
		}
		if op == last {
			fmt.Fprintf(&b, ", %s", position)
			continue
		}
		if last != "" {
			fmt.Fprintln(&b, " |")
		}
		fmt.Fprintf(&b, "| %s | %s | %s", p.Process, op, position)
		last = op
	}
	fmt.Fprintln(&b, " |")
	return b.String()
}

// positions is the table of what the positions mean, as the constants' comments say it.
func positions(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../internal/crash/points.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Position" {
			return true
		}
		name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("| %s | %s |\n", name, strings.TrimSpace(spec.Comment.Text())))
		return true
	})
	slices.Sort(lines)
	return "| position | there |\n|---|---|\n" + strings.Join(lines, "")
}
