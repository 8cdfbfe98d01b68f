// Command vm runs the tests of chaos-tests in a virtual machine with another
// kernel than this machine's and unified control groups (cgroup v2), which the
// nodes in production have. It builds the machine's file system from what is
// here, so that nothing in it is older than the source, and prints what
// `go test -json` would. It fails where the machine did not say that it has
// done all. `make vm-test` runs it.
//
//	go run ./vm                             all that suite.go lists
//	go run ./vm lifecycle kill              these packages
//	go run ./vm -run TestPids lifecycle     one test
//	go run ./vm -sh 'mount; runc --version' a shell command
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.run, "run", "", "run only the tests that match, as `go test -run` does")
	flag.StringVar(&o.script, "sh", "", "a shell command to run before the tests, and instead of them where no package is named")
	flag.StringVar(&o.kernel, "kernel", "linux-image-6.12-cloud-amd64", "Debian package of the kernel, as scripts/setup has unpacked it")
	flag.DurationVar(&o.limit, "limit", 30*time.Minute, "how long the machine may run")
	flag.Parse()
	o.packages = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

type options struct {
	run, script, kernel string
	limit               time.Duration
	packages            []string // directories below chaos-tests
}

func run(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "perdure-vm-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m := machine{kvm: haveKVM(), console: filepath.Join(dir, "console")}
	m.kernel, m.initramfs, err = build(dir, o, choose(o), m.slowness())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	return m.run(ctx, os.Stdout)
}
