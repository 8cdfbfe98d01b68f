package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"perdure/chaos-tests/daemon"
)

// The command runs itself again twice, each told by this variable what it is:
// as the first process of the namespaces, which only starts the next and reaps,
// and as the run itself.
const stage = "PERDURE_CONFORMANCE"

const (
	stageInit = "init"
	stageRun  = "run"
)

// place is the variable with the run's directory.
const place = "PERDURE_CONFORMANCE_DIR"

// enter does this process's stage and returns its exit code.
func enter(o options) (int, error) {
	dir := os.Getenv(place)
	switch os.Getenv(stage) {
	case stageInit:
		return beInit(o, dir)
	case stageRun:
		return run(o, dir)
	}
	if !supported() {
		return 0, fmt.Errorf("the images are not made for %s", goruntime.GOARCH)
	}
	dir, err := os.MkdirTemp("/tmp", "pc-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	return outside(dir)
}

// outside starts the first process of the namespaces and waits for it. The
// kernel kills it, and with it all that is in them, when this one dies.
func outside(dir string) (int, error) {
	goruntime.LockOSThread() // which the death signal is tied to
	cmd := again(stageInit, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	return exitCode(cmd.Run())
}

func again(as, dir string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+as, place+"="+dir)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = nil, os.Stdout, os.Stderr
	return cmd
}

func exitCode(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// beInit makes the namespaces a place for the run, starts it, and reaps what
// loses its parent until the run has ended.
func beInit(o options, dir string) (int, error) {
	if err := furnish(o, dir); err != nil {
		return 0, err
	}
	cmd := again(stageRun, dir)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the run: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 0, fmt.Errorf("the run was ended by %v", status.Signal())
		}
	}
}

// masked are the directories that the suite, containerd and the shims write
// to by fixed names. In the run's namespace they are empty.
var masked = []string{"/run", "/var/lib", "/opt"}

// furnish mounts what the run needs, and first all that it must go on to see:
// the binaries may be below a masked directory.
func furnish(o options, dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := bindBinaries(o, dir); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, path := range masked {
		if err := unix.Mount("conformance", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return os.Mkdir(filepath.Join(dir, "tmp"), 0o711)
}

// bindBinaries mounts the directories with binaries below dir.
func bindBinaries(o options, dir string) error {
	bin, err := daemon.Bin()
	if err != nil {
		return err
	}
	peers, err := daemon.Peers()
	if err != nil {
		return err
	}
	logs, err := filepath.Abs(o.logs)
	if err != nil {
		return err
	}
	for name, from := range map[string]string{"perdure": bin, "peers": peers, "suite": o.suite, "runc": o.runc, "logs": logs} {
		to := filepath.Join(dir, name)
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if from == "" {
			continue
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", from, err)
		}
	}
	return nil
}

// path returns the PATH of the suite: a runc of the run's own comes before
// the machine's.
func path(dir string) string {
	var dirs []string
	for _, name := range []string{"runc", "suite", "peers", "perdure"} {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	return strings.Join(append(dirs, os.Getenv("PATH")), ":")
}
