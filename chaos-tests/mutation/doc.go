// Command mutation breaks the product on purpose, one line at a time, and expects that some test notices each
// fault. `make mutation` runs all of them, MUTANT=REGEXP those of that name.
//
// A mutant is never written into the tree: the go command reads the changed file from a temporary directory
// (go build -overlay). Each mutant names the test that catches it, and that one is run first; where it does not
// notice, the others are, from the cheapest on: the unit tests of the package, all unit tests, the simulation, the
// tests with real binaries. The run fails when a mutant survives, when its text is no longer in the source, when it
// does not compile, when the list names the wrong test, and when a test that catches something fails without any
// fault. README.md is generated from the list.
package main
