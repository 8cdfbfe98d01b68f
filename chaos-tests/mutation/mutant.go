package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one deliberate fault.
type mutant struct {
	name  string
	file  string // within the tree; its directory is the room
	in    string // how the function begins that has the text; "": the text is once in the file
	old   string
	new   string
	hurts string // what a user would see of it
	by    string // the test that catches it, "PACKAGE TEST", the package within the tree
}

func (m mutant) room() string { return path.Dir(m.file) }

// mutants is the whole list, in the order of the rooms.
func mutants() []mutant {
	return slices.Concat(storeMutants, lifecycleMutants, recoveryMutants, keeperMutants, clientMutants, runtimeMutants, taskMutants)
}

// catcher splits by.
func (m mutant) catcher() catcher {
	dir, test, _ := strings.Cut(m.by, " ")
	return catcher{dir, test}
}

// apply returns the source with the fault in it. The text must be there once.
func (m mutant) apply(source string) (string, error) {
	start, end := 0, len(source)
	if m.in != "" {
		if n := strings.Count(source, "\n"+m.in); n != 1 {
			return "", fmt.Errorf("%s: %d functions of %s begin with %q", m.name, n, m.file, m.in)
		}
		start = strings.Index(source, "\n"+m.in) + 1
		end = start + ending(source[start:])
	}
	if n := strings.Count(source[start:end], m.old); n != 1 {
		return "", fmt.Errorf("%s: %q is %d times in %s %s; the list has to follow the source", m.name, m.old, n, m.file, m.in)
	}
	return source[:start] + strings.Replace(source[start:end], m.old, m.new, 1) + source[end:], nil
}

// ending is where the function at the start of the text ends.
func ending(text string) int {
	line, _, _ := strings.Cut(text, "\n")
	if strings.HasSuffix(line, "}") { // all of it is one line
		return len(line)
	}
	return strings.Index(text, "\n}\n")
}

// mutate reads the file in the tree and returns it with the fault.
func (m mutant) mutate(tree string) (string, error) {
	source, err := os.ReadFile(filepath.Join(tree, m.file))
	if err != nil {
		return "", fmt.Errorf("%s: %w", m.name, err)
	}
	return m.apply(string(source))
}
