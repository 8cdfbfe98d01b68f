package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runc "github.com/containerd/go-runc"
)

// DefaultRoot is where runc keeps its state, a directory per namespace below it. It is
// the stock shim's, so that operators' habits (runc --root /run/containerd/runc/k8s.io)
// and a change of shim keep working.
const DefaultRoot = "/run/containerd/runc"

// defaultTimeout bounds a runtime call where Config gives nothing. Creates with slow
// hooks (CNI, GPU set-up) are known to take tens of seconds.
const defaultTimeout = 2 * time.Minute

// Config says which container a Runc is for and how its runtime is called. ID, Bundle,
// Namespace and Instance are required.
type Config struct {
	Namespace string
	ID        string
	Bundle    string // absolute path
	Instance  string // tells this container from an earlier one of the same id
	Binary    string // path or name in $PATH; empty means runc
	Root      string // directory of the runtime's state; empty means DefaultRoot

	SystemdCgroup bool
	NoPivotRoot   bool
	NoNewKeyring  bool
	IoUID, IoGID  int // owner of the pipes made for the container's stdio

	Restores bool // the container comes from a checkpoint: its start is a restore

	KeeperPID int           // parent of orphans, where WaitOrphans looks for them; 0 means the whole machine
	Timeout   time.Duration // limit of each runtime call, but for CRIU's: see Limit; 0 means two minutes
	FailWait  time.Duration // for a runtime whose hooks were killed to clean up after itself; 0 means five seconds
}

// Runc calls the runtime for one container. It holds no state of its own and is safe
// for concurrent use; calls of one intent follow each other.
type Runc struct {
	Config
}

// New returns the Runc for a container. Nothing is touched before the first call.
func New(c Config) *Runc {
	if c.Binary == "" {
		c.Binary = runc.DefaultCommand
	}
	if c.Root == "" {
		c.Root = DefaultRoot
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.FailWait == 0 {
		c.FailWait = defaultFailWait
	}
	c.Root = filepath.Join(c.Root, c.Namespace)
	return &Runc{Config: c}
}

// Limit is how long the runtime may work on an intent, for the worker that calls it and
// for the next, which waits for what a dead one has called. The intent's name begins with
// its operation. A dump and a restore copy the container's memory, so they have more.
func (r *Runc) Limit(intent string) time.Duration {
	switch op, _, _ := strings.Cut(intent, "-"); {
	case op == "checkpoint", op == "start" && r.Restores:
		return max(criuTimeout, r.Timeout)
	}
	return r.Timeout
}

// client is the go-runc client for a call of an intent; without one nothing is logged
// to a file. The working directory is the bundle because a console socket is given by
// a relative path: bundle paths exceed the 108 bytes of a socket address. A bundle that
// was removed must not keep its container from being looked at and deleted, so those
// calls go without. No parent death signal: see the package comment. A process group of
// its own is how a runtime is told from what its hooks leave behind: see WaitOrphans.
func (r *Runc) client(intent string) *runc.Runc {
	c := &runc.Runc{
		Command:       r.Binary,
		Root:          r.Root,
		WorkDir:       r.Bundle,
		LogFormat:     runc.JSON,
		Setpgid:       true,
		SystemdCgroup: r.SystemdCgroup,
	}
	if _, err := os.Stat(r.Bundle); errors.Is(err, os.ErrNotExist) {
		c.WorkDir = "/"
	} else if intent != "" {
		c.Log = r.file(intent, "log")
	}
	return c
}

// run makes one call of the runtime on behalf of an intent and classifies its error.
// Where Limit, or ctx, ends first the runtime is ended as an orphan is, hooks first:
// killed itself, it would leave its hooks running, and cgroups that its delete does not
// know.
func (r *Runc) run(ctx context.Context, intent, op string, call func(context.Context, *runc.Runc) error) error {
	err := os.Mkdir(filepath.Join(r.Bundle, intentDir), 0o700) // of the intent's files, where there is a bundle for it
	if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("container %s: %s: directory of the intent's files: %w", r.ID, intent, err)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Limit(intent))
	defer cancel()
	returned, ended := make(chan struct{}), make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ended <- endCall(returned, func() error { return r.WaitOrphans(ctx, intent) })
	})
	err = call(runc.WithExtraEnv(context.WithoutCancel(ctx), r.marker(intent)), r.client(intent))
	close(returned)
	if !stop() {
		err = errors.Join(err, <-ended)
	}
	return r.explain(ctx, intent, op, err)
}

// endCall ends the runtime until its call has returned: it may not be forked yet, and
// what could not be ended now is tried again, or nobody would. The error is the last
// try's.
func endCall(returned <-chan struct{}, end func() error) error {
	for {
		err := end()
		select {
		case <-returned:
			return err
		case <-time.After(orphanRound):
		}
	}
}
