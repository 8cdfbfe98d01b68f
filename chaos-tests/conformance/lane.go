package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The command runs itself again twice, each told by this variable what it is:
// as the first process of the namespaces, which only starts the next and reaps,
// and as the lane itself. The other variable has the lane's directory.
const (
	stageVariable = "PERDURE_CONFORMANCE"
	stageInit     = "init"
	stageLane     = "lane"
	dirVariable   = "PERDURE_CONFORMANCE_DIR"
)

// Files in a lane's directory.
const (
	taskFile   = "job.json"
	reportFile = "report.json"
)

func readJob() (*job, error) {
	j := &job{dir: os.Getenv(dirVariable)}
	data, err := os.ReadFile(filepath.Join(j.dir, taskFile))
	if err != nil {
		return nil, err
	}
	return j, json.Unmarshal(data, j)
}

// beInit makes the namespaces a place for the lane, starts it, and reaps what
// loses its parent until the lane has ended.
func beInit() (int, error) {
	j, err := readJob()
	if err != nil {
		return 0, err
	}
	if err := j.furnish(); err != nil {
		return 0, err
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageVariable+"="+stageLane)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the lane: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 0, fmt.Errorf("the lane was ended by %v", status.Signal())
		}
	}
}

// masked are the directories that the suite, containerd and the shims write
// to by fixed names. In a lane they are empty.
var masked = []string{"/run", "/var/lib", "/opt"}

// furnish mounts what the lane needs, and first all that it must go on to see:
// the binaries may be below a masked directory.
func (j *job) furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	binds := map[string]string{"logs": j.Logs}
	for name, from := range j.Dirs {
		binds[name] = from
	}
	for name, from := range binds {
		to := filepath.Join(j.dir, name)
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", from, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for _, path := range masked {
		if err := unix.Mount("conformance", path, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return os.Mkdir(j.temp(), 0o711)
}

// temp is the lane's TMPDIR.
func (j *job) temp() string { return filepath.Join(j.dir, "tmp") }

// path returns the PATH of the suite: a runc of the run's own comes before
// the machine's.
func (j *job) path() string {
	var dirs []string
	for _, name := range []string{"runc", "suite", "peers", "perdure"} {
		dirs = append(dirs, filepath.Join(j.dir, name))
	}
	return strings.Join(append(dirs, os.Getenv("PATH")), ":")
}

// beLane does the job.
func beLane() (err error) {
	j, err := readJob()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(j.dir, "logs", j.Name+".log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	mounts, err := mountPoints()
	if err != nil {
		return err
	}
	l := &runner{job: j, log: log, again: map[string]int{}, mounts: mounts, cgroups: cgroups()}
	l.report.Results = map[string]result{}
	if err := l.work(context.Background()); err != nil {
		return err
	}
	data, err := json.Marshal(l.report)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(j.dir, reportFile), data, 0o600)
}
