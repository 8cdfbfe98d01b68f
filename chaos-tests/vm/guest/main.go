// Command guest is the first process of the virtual machine that `make vm-test`
// starts. It makes a small Linux with unified control groups, runs the tests of
// its plan one after the other, answers on a virtio port, and switches the
// machine off. Whatever goes wrong: it says so on the console and switches the
// machine off without the last line of an answer.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/vm/plan"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the init of a virtual machine: see `make vm-test`")
		os.Exit(2)
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
	}
	unix.Sync()
	fmt.Fprintln(os.Stderr, "guest: power off:", unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func work() error {
	data, err := os.ReadFile(plan.File)
	if err != nil {
		return err
	}
	var todo plan.Plan
	if err := json.Unmarshal(data, &todo); err != nil {
		return fmt.Errorf("%s: %w", plan.File, err)
	}
	if err := setUp(todo.Modules); err != nil {
		return err
	}
	results, err := openPort(plan.Results)
	if err != nil {
		return err
	}
	if todo.Script != "" {
		if _, err := run(results, todo.Env, plan.Tree, "/bin/sh", "-c", todo.Script); err != nil {
			return err
		}
	}
	for _, t := range todo.Tests {
		if err := test(results, todo.Env, t); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(results, plan.Done)
	return err
}

// test runs one package's tests; that they fail is told by their output.
func test(results *os.File, env []string, t plan.Test) error {
	args := []string{"/bin/test2json", "-t", "-p", t.Package, t.Binary, "-test.v=test2json", "-test.paniconexit0"}
	_, err := run(results, slices.Concat(t.Env, env), t.Dir, append(args, t.Args...)...)
	return err
}

// run waits for a program's end and returns its wait status. It collects the
// orphans that end meanwhile: nobody else would.
func run(out *os.File, env []string, dir string, args ...string) (unix.WaitStatus, error) {
	p, err := os.StartProcess(args[0], args, &os.ProcAttr{Dir: dir, Env: env, Files: []*os.File{nil, out, out}})
	if err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", args[0], err)
		case pid == p.Pid:
			return status, nil
		}
	}
}

// openPort opens the virtio port that the host has given a name.
func openPort(name string) (*os.File, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(data)) == name {
			return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(file))), os.O_WRONLY, 0)
		}
	}
	return nil, fmt.Errorf("none of the virtio ports %v is called %s", files, name)
}
