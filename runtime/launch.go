package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	runc "github.com/containerd/go-runc"
)

// Create creates the container of the bundle and returns its init's pid. launched is
// called right before the fork, after everything that can fail without an effect; its
// error ends the call with nothing done. The caller calls stdio.Started afterwards.
func (r *Runc) Create(ctx context.Context, intent string, stdio *IO, launched func() error) (int, error) {
	if err := r.linkInitPid(intent); err != nil {
		return 0, err
	}
	err := r.run(ctx, intent, "create", func(ctx context.Context, c *runc.Runc) error {
		return c.Create(ctx, r.ID, r.Bundle, &runc.CreateOpts{
			IO:            &launch{stdio: stdio, launched: launched},
			PidFile:       r.file(intent, "pid"),
			ConsoleSocket: stdio.consoleSocket(),
			NoPivot:       r.NoPivotRoot,
			NoNewKeyring:  r.NoNewKeyring,
		})
	})
	if err != nil {
		return 0, err
	}
	return r.launchedPid(intent, "create")
}

// initPid is where the stock shim has the init's pid in the bundle, and where others look
// for it. The runtime writes an intent's own file, so that no later attempt takes it
// for its own; this is a link to that.
const initPid = "init.pid"

func (r *Runc) linkInitPid(intent string) error {
	link := filepath.Join(r.Bundle, initPid)
	err := os.Remove(link)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Symlink(r.initPidTarget(intent), link)
	}
	if err != nil {
		return fmt.Errorf("container %s: %s: link %s: %w", r.ID, intent, initPid, err)
	}
	return nil
}

func (r *Runc) initPidTarget(intent string) string { return filepath.Join(intentDir, intent+".pid") }

// Exec starts a further process in the container and returns its pid. process is the
// OCI process document; its terminal flag is made to agree with stdio. launched is as
// for Create.
//
// go-runc's own Exec writes the document to a random temporary file, which a killed
// worker would leave behind, and with it the process's environment. So the command
// line is built here and only run by go-runc's monitor.
func (r *Runc) Exec(ctx context.Context, intent string, process []byte, stdio *IO, launched func() error) (int, error) {
	err := r.run(ctx, intent, "exec", func(ctx context.Context, c *runc.Runc) error {
		document, err := r.writeProcess(intent, process, stdio.stdio.Terminal)
		if err != nil {
			return err
		}
		cmd := execCommand(ctx, c, r.marker(intent), r.ID, execFiles{
			process: document,
			pid:     r.file(intent, "pid"),
			console: stdio.consoleSocket(),
		})
		(&launch{stdio: stdio, launched: launched}).Set(cmd)
		return runCommand(cmd)
	})
	if err != nil {
		return 0, err
	}
	return r.launchedPid(intent, "exec")
}

func (r *Runc) launchedPid(intent, op string) (int, error) {
	pid, ok := r.PidFile(intent)
	if !ok {
		return 0, fmt.Errorf("container %s: %s: the runtime reported success but left no pid in %s", r.ID, op, r.file(intent, "pid"))
	}
	return pid, nil
}

// writeProcess puts the process document beside the intent's other files, whole or
// not at all. It holds the process's environment, hence 0600.
func (r *Runc) writeProcess(intent string, process []byte, terminal bool) (string, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(process, &fields); err != nil {
		return "", fmt.Errorf("process document: %w", err)
	}
	fields["terminal"] = json.RawMessage(fmt.Sprint(terminal))
	document, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("process document: %w", err)
	}
	path := r.file(intent, "json")
	if err := os.WriteFile(path+".new", document, 0o600); err != nil {
		return "", fmt.Errorf("process document: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("process document: %w", err)
	}
	return path, nil
}

type execFiles struct {
	process, pid string
	console      runc.ConsoleSocket
}

// execCommand is `runc exec` with the same global options, environment and directory
// go-runc gives to every other call.
func execCommand(ctx context.Context, c *runc.Runc, marker, id string, files execFiles) *exec.Cmd {
	args := []string{"--root", c.Root, "--log", c.Log, "--log-format", string(c.LogFormat)}
	if c.SystemdCgroup {
		args = append(args, "--systemd-cgroup")
	}
	args = append(args, "exec", "--detach", "--process", files.process, "--pid-file", files.pid)
	if files.console != nil {
		args = append(args, "--console-socket", files.console.Path())
	}
	cmd := exec.CommandContext(ctx, c.Command, append(args, id)...)
	cmd.Dir = c.WorkDir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: c.Setpgid}
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET=", marker)
	return cmd
}

// runCommand runs a command as go-runc runs its own: through the monitor, with what
// it says kept for the error unless the output is the container's.
func runCommand(cmd *exec.Cmd) error {
	var said bytes.Buffer
	if cmd.Stdout == nil && cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &said, &said
	}
	exits, err := runc.Monitor.Start(cmd)
	if err != nil {
		return err
	}
	status, err := runc.Monitor.Wait(cmd, exits)
	if err == nil && status != 0 {
		err = fmt.Errorf("%s did not terminate successfully: %w: %s", filepath.Base(cmd.Path), &runc.ExitError{Status: status}, &said)
	}
	return err
}

// launch gives go-runc the process's stdio. Set is the last thing called before the
// fork, which makes it the place for launched: an error goes into cmd.Err, which
// exec.Cmd.Start returns without forking.
type launch struct {
	stdio    *IO
	launched func() error
}

func (l *launch) Set(cmd *exec.Cmd) {
	if !l.stdio.stdio.Terminal {
		if in := l.stdio.child[stdin]; in != nil {
			cmd.Stdin = in
		}
		cmd.Stdout, cmd.Stderr = l.stdio.child[stdout], l.stdio.child[stderr]
	}
	if l.launched == nil || cmd.Err != nil {
		return
	}
	cmd.Err = l.launched()
}

func (l *launch) Stdin() io.WriteCloser { return nil }
func (l *launch) Stdout() io.ReadCloser { return nil }
func (l *launch) Stderr() io.ReadCloser { return nil }
func (l *launch) Close() error          { return nil }
