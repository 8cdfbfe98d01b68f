// Package plan is what the host tells the machine to do.
package plan

// File is where the machine finds its Plan, as JSON.
const File = "/plan.json"

// Results is the name of the virtio port that the machine answers on. What is
// written there is the output of `go test -json`, then Done.
const Results = "perdure.results"

// Done is the last line of the machine's answer. Without it the machine has
// died, whatever it said before.
const Done = "vm-test: done"

// Tree is where the machine has what a test looks for in the source tree.
const Tree = "/perdure"

// Plan is all that the machine does.
type Plan struct {
	Modules []string // files of kernel modules, in the order of loading
	Env     []string // for every test and the script
	Script  string   // run by a shell before the tests; empty: none
	Tests   []Test
}

// Test is one compiled package of tests.
type Test struct {
	Package string   // import path
	Dir     string   // the package's directory in the machine
	Binary  string   // file in the machine
	Args    []string // flags of the test binary
	Env     []string // before the plan's: of two values for a name, programs take the first
}
