package lifecycle

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/lifecycle.md from the tables")

const document = "../../docs/lifecycle.md"

// TestDocument holds docs/lifecycle.md to the tables: what stands between its markers is generated.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{
		"diagram of init":   diagram(Init),
		"diagram of execs":  diagram(Exec),
		"table of init":     transitions(Init),
		"table of execs":    transitions(Exec),
		"on one process":    exclusions(Commands(), "A", "A"),
		"on init and execs": exclusions(Commands(), "", "A"),
	}
	marked := regexp.MustCompile(`(?s)(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)`)
	want := marked.ReplaceAllStringFunc(string(data), func(s string) string {
		m := marked.FindStringSubmatch(s)
		body, ok := sections[m[2]]
		if !ok {
			t.Errorf("nothing generates %q", m[2])
		}
		delete(sections, m[2])
		return m[1] + body + m[3]
	})
	for name := range sections {
		t.Errorf("the document has no section %q", name)
	}
	if want == string(data) {
		return
	}
	if !*update {
		t.Fatal("docs/lifecycle.md is not what the tables say: run go generate ./store/lifecycle")
	}
	if err := os.WriteFile(document, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diagram draws what moves a process; what leaves it where it is stands in the table.
func diagram(kind Kind) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n    direction LR\n")
	for _, from := range States() {
		arrows := map[State][]string{}
		for _, op := range slices.Concat(Commands(), Observations()) {
			if to, err := Next(kind, from, op); err == nil && to != from {
				arrows[to] = append(arrows[to], string(op))
			}
		}
		for _, to := range States() {
			if len(arrows[to]) > 0 {
				fmt.Fprintf(&b, "    %s --> %s : %s\n", node(from), node(to), strings.Join(arrows[to], ", "))
			}
		}
	}
	b.WriteString("    deleted --> [*]\n```\n")
	return b.String()
}

func node(s State) string {
	if s == None {
		return "[*]"
	}
	return string(s)
}

func transitions(kind Kind) string {
	var list []State
	for _, s := range States() {
		if table[kind][s] != nil {
			list = append(list, s)
		}
	}
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range list {
		fmt.Fprintf(&b, " %s |", name(s))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(list)) + "\n")
	for _, op := range slices.Concat(Commands(), Observations()) {
		fmt.Fprintf(&b, "| **%s** |", op)
		for _, from := range list {
			fmt.Fprintf(&b, " %s |", cell(kind, from, op))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func cell(kind Kind, from State, op Op) string {
	switch to, err := Next(kind, from, op); {
	case err != nil:
		return "_" + string(reason(kind, from, op)) + "_"
	case to == from:
		return "stays"
	default:
		return string(to)
	}
}

// exclusions lists, for each operation on x, the operations on y that wait for it.
func exclusions(list []Op, x, y string) string {
	var b strings.Builder
	b.WriteString("| while this is under way | these wait |\n|---|---|\n")
	for _, a := range list {
		var waiting []string
		for _, o := range list {
			if Excludes(Target{a, x}, Target{o, y}) {
				waiting = append(waiting, string(o))
			}
		}
		switch len(waiting) {
		case 0:
			waiting = []string{"-"}
		case len(list):
			waiting = []string{"all"}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", a, strings.Join(waiting, ", "))
	}
	return b.String()
}
