// Command perdure is the worker of the shim, what containerd's delete and
// -info calls end in, and the operators' tool, in one binary.
//
//	perdure worker              started by the keeper only
//	perdure cleanup SHIM-ARGS   containerd-shim-perdure-v2 ... delete
//	perdure info SHIM-ARGS      containerd-shim-perdure-v2 -info
//	perdure shim-cgroup         asked by containerd-shim-perdure-v2 ... start
//	perdure journal BUNDLE      print a container's journal as a timeline
//	perdure version
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// version is set by the build (see Makefile).
var version = "dev"

var commands = map[string]func(args []string) error{
	"worker":      worker,
	"cleanup":     cleanup,
	"info":        info,
	"shim-cgroup": shimCgroup,
	"journal":     journal,
	"version":     printVersion,
}

const usage = `usage:
  perdure journal BUNDLE   print a container's journal as a timeline
  perdure version
Run by the shim, not by people: worker, cleanup, info, shim-cgroup.
`

func main() {
	if len(os.Args) < 2 || os.Args[1] == "help" || os.Args[1] == "-h" || os.Args[1] == "--help" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	run, ok := commands[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "perdure: unknown command %q\n%s", os.Args[1], usage)
		os.Exit(2)
	}
	if err := run(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "perdure %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func printVersion([]string) error {
	_, err := fmt.Printf("perdure %s\nrevision %s\n", version, revision())
	return err
}

// revision is the commit the binary was built from, where the build knew it.
func revision() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// readOptions reads what containerd gives on stdin, at most 4 MiB.
func readOptions() ([]byte, error) {
	return io.ReadAll(io.LimitReader(os.Stdin, 4<<20))
}
