package runtime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	runc "github.com/containerd/go-runc"
)

// CheckpointOptions are CRIU's, as containerd.runc.v1.CheckpointOptions names them.
type CheckpointOptions struct {
	ImagePath           string   `json:"imagePath"`            // directory of the image
	WorkPath            string   `json:"workPath,omitempty"`   // CRIU's logs; empty: in the bundle, removed after success
	ParentPath          string   `json:"parentPath,omitempty"` // an earlier image, relative to ImagePath
	Exit                bool     `json:"exit,omitempty"`       // end the container afterwards
	OpenTCP             bool     `json:"openTCP,omitempty"`
	ExternalUnixSockets bool     `json:"externalUnixSockets,omitempty"`
	Terminal            bool     `json:"terminal,omitempty"`
	FileLocks           bool     `json:"fileLocks,omitempty"`
	EmptyNamespaces     []string `json:"emptyNamespaces,omitempty"`
	CgroupsMode         string   `json:"cgroupsMode,omitempty"` // soft, full, strict
}

// criuTimeout bounds a dump and a restore instead of Config.Timeout: see Limit.
const criuTimeout = 10 * time.Minute

// The names CRIU gives its logs, in the work directory.
const (
	dumpLog    = "dump.log"
	restoreLog = "restore.log"
)

// HasCRIU reports whether CRIU is installed. Containers that it may be asked to dump must
// have pipes for their output: a named fifo is of a mount that is not the container's, and
// cannot be dumped (CRIU 3.17: "Can't lookup mount"); for pipes runc tells CRIU what to
// put in their place.
func HasCRIU() bool {
	_, err := exec.LookPath("criu")
	return err == nil
}

// Checkpoint writes an image of a running or paused container with CRIU. It can be
// repeated: the image is written anew. Its error has CRIU's own words where there are
// any; CRIU's log then stays in the bundle as criu-dump.log.
func (r *Runc) Checkpoint(ctx context.Context, intent string, o CheckpointOptions) error {
	var actions []runc.CheckpointAction
	if !o.Exit {
		actions = append(actions, runc.LeaveRunning)
	}
	work, done, err := r.criuWork(intent, o.WorkPath, dumpLog)
	if err != nil {
		return err
	}
	defer done()
	err = r.run(ctx, intent, "checkpoint", func(ctx context.Context, c *runc.Runc) error {
		return c.Checkpoint(ctx, r.ID, &runc.CheckpointOpts{
			ImagePath:                o.ImagePath,
			WorkDir:                  work,
			ParentPath:               o.ParentPath,
			AllowOpenTCP:             o.OpenTCP,
			AllowExternalUnixSockets: o.ExternalUnixSockets,
			AllowTerminal:            o.Terminal,
			FileLocks:                o.FileLocks,
			EmptyNamespaces:          o.EmptyNamespaces,
			Cgroups:                  runc.CgroupMode(o.CgroupsMode),
		}, actions...)
	})
	return r.criuError(err, work, dumpLog)
}

// Image is what a container is restored from.
type Image struct {
	Path       string `json:"path"`                 // directory CRIU has written
	ParentPath string `json:"parentPath,omitempty"` // relative to Path
	WorkPath   string `json:"workPath,omitempty"`   // as in CheckpointOptions
}

// Restore makes the container of the bundle go on from an image, and returns its
// init's pid: what Create and Start are for any other. launched is as for Create.
func (r *Runc) Restore(ctx context.Context, intent string, image Image, stdio *IO, launched func() error) (int, error) {
	if err := r.linkInitPid(intent); err != nil {
		return 0, err
	}
	work, done, err := r.criuWork(intent, image.WorkPath, restoreLog)
	if err != nil {
		return 0, err
	}
	defer done()
	err = r.run(ctx, intent, "restore", func(ctx context.Context, c *runc.Runc) error {
		_, err := c.Restore(ctx, r.ID, r.Bundle, &runc.RestoreOpts{
			CheckpointOpts: runc.CheckpointOpts{ImagePath: image.Path, ParentPath: image.ParentPath, WorkDir: work},
			IO:             &launch{stdio: stdio, launched: launched},
			Detach:         true,
			NoSubreaper:    true, // the keeper is
			PidFile:        r.file(intent, "pid"),
			ConsoleSocket:  stdio.consoleSocket(),
			NoPivot:        r.NoPivotRoot,
		})
		return err
	})
	if err != nil {
		return 0, r.criuError(err, work, restoreLog)
	}
	return r.launchedPid(intent, "restore")
}

// CheckpointError is LoggedError of a dump, with CRIU's words.
func (r *Runc) CheckpointError(intent string, o CheckpointOptions) error {
	return r.criuError(r.LoggedError(intent, "checkpoint"), r.workPath(intent, o.WorkPath), dumpLog)
}

// RestoreError is LoggedError of a restore, with CRIU's words.
func (r *Runc) RestoreError(intent string, image Image) error {
	return r.criuError(r.LoggedError(intent, "restore"), r.workPath(intent, image.WorkPath), restoreLog)
}

// workPath is the caller's, or the intent's own.
func (r *Runc) workPath(intent, path string) string {
	if path != "" {
		return path
	}
	return r.file(intent, criuDir)
}

// criuWork makes CRIU's work directory: the caller's, which stays, or one of the
// intent's, which done removes. An earlier call's log is removed: it would be taken for
// this one's, should this fail before CRIU is run.
func (r *Runc) criuWork(intent, path, log string) (work string, done func(), err error) {
	work = r.workPath(intent, path)
	if err = os.MkdirAll(work, 0o700); err == nil {
		if err = os.Remove(filepath.Join(work, log)); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return "", nil, fmt.Errorf("container %s: CRIU's work directory: %w", r.ID, err)
	}
	if path != "" {
		return work, func() {}, nil
	}
	return work, func() { _ = os.RemoveAll(work) }, nil
}

// criuError adds what CRIU said to a runtime's error, and keeps the log, or the last
// logTail bytes of it, in the bundle.
func (r *Runc) criuError(err error, work, log string) error {
	if err == nil {
		return nil
	}
	text, missing := readTail(filepath.Join(work, log), logTail)
	if missing != nil {
		return err // it failed before CRIU was run
	}
	kept := filepath.Join(r.Bundle, "criu-"+log)
	if failed := os.WriteFile(kept, text, 0o600); failed != nil {
		return errors.Join(err, failed)
	}
	cause := "no error in its log"
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if _, said, ok := strings.Cut(lines.Text(), "Error ("); ok { // "(00.012345) Error (criu/x.c:12): what"
			cause = "(" + said
		}
	}
	return fmt.Errorf("%w: CRIU: %s: its log is %s", err, shorten(cause), kept)
}
