// Command containerd-shim-perdure-v2 is what containerd calls, and what stays:
// `start` binds a socket and leaves a keeper behind it, `delete` and `-info`
// hand over to the worker's program, `perdure`.
//
// It promises to answer every caller in its own dialect (see stdin.go), to
// answer as soon as the socket is bound, to print nothing but the answer on
// stdout and nothing but one line per error on stderr, and to leave nothing
// behind when it fails. It never runs runc, never reads a journal, and imports
// the standard library and golang.org/x/sys only, because a keeper is this
// program for as long as a container lives.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// name of the program, as containerd derives it from io.containerd.perdure.v2.
const name = "containerd-shim-perdure-v2"

// version is set by the linker (-X main.version=...).
var version = "dev"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}

func run(args []string) error {
	f, err := parseFlags(args)
	switch {
	case err != nil:
		return err
	case f.version:
		printVersion()
		return nil
	case f.info:
		return handOver("info", args)
	}
	switch f.action {
	case "start":
		if err := f.check(); err != nil {
			return err
		}
		return start(f)
	case "delete":
		if err := f.check(); err != nil {
			return err
		}
		return handOver("cleanup", args)
	case "keeper":
		return keep(f)
	case "":
		return fmt.Errorf("an action is missing: start or delete (containerd gives it)")
	}
	return fmt.Errorf("unknown action %q: start and delete are known", f.action)
}

// printVersion answers -v: name, version, revision, Go version, a line each.
func printVersion() {
	revision := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	fmt.Printf("%s:\n  Version:  %s\n  Revision: %s\n  Go version: %s\n\n", name, version, revision, runtime.Version())
}

// workerProgram is $PERDURE_WORKER, or the `perdure` beside this program, or where none
// is there (containerd was given the path of a copy) that in $PATH.
func workerProgram() (string, error) {
	if path := os.Getenv("PERDURE_WORKER"); path != "" {
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding perdure: %w", err)
	}
	beside := filepath.Join(filepath.Dir(self), "perdure")
	for _, path := range append([]string{beside}, inPath("perdure")...) {
		if filepath.IsAbs(path) && unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return beside, nil // named in the error of whoever runs it
}

// inPath is where a program would be in $PATH. Package os/exec is not worth its memory here.
func inPath(program string) []string {
	var paths []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		paths = append(paths, filepath.Join(dir, program))
	}
	return paths
}

// handOver becomes `perdure <command> <args>`.
func handOver(command string, args []string) error {
	path, err := workerProgram()
	if err != nil {
		return err
	}
	err = syscall.Exec(path, append([]string{path, command}, args...), os.Environ())
	return cannotRun(path, command, err)
}

func cannotRun(path, command string, err error) error {
	return fmt.Errorf("running %s %s: %w (it belongs beside the shim, into $PATH or PERDURE_WORKER)", path, command, err)
}
