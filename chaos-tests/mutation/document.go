package main

import (
	"fmt"
	"strings"
)

// document is README.md: the list for people.
func document(list []mutant) string {
	var b strings.Builder
	b.WriteString(`# Deliberate faults, and who catches them

Each line is a fault of one line in the product and the test that fails with it. ` + "`make mutation`" + ` proves every line,
` + "`make mutation MUTANT=NAME`" + ` (a regular expression) some; it fails when a fault is noticed by nobody. The faults are in the
.go files beside this one; the tree is never changed (` + "`go test -overlay`" + `). After a change to the list:
` + "`go run ./mutation -update`" + `.
`)
	room := ""
	for _, m := range list {
		if m.room() != room {
			room = m.room()
			fmt.Fprintf(&b, "\n## %s\n\n| fault | what it would do to a user | caught by |\n|---|---|---|\n", room)
		}
		c := m.catcher()
		fmt.Fprintf(&b, "| %s | %s | %s, %s |\n", m.name, m.hurts, c.dir, c.test)
	}
	fmt.Fprintf(&b, "\n%d faults.\n", len(list))
	return b.String()
}
