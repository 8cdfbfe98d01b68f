package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

	KeeperPID int           // parent of orphans, where WaitOrphans looks for them; 0 means the whole machine
	Timeout   time.Duration // limit of each runtime call; 0 means two minutes
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
	c.Root = filepath.Join(c.Root, c.Namespace)
	return &Runc{Config: c}
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
func (r *Runc) run(ctx context.Context, intent, op string, call func(context.Context, *runc.Runc) error) error {
	return r.runFor(ctx, r.Timeout, intent, op, call)
}

// runFor is run with a limit of its own. Where that, or ctx, ends first the runtime is
// ended as an orphan is, hooks first: killed itself, it would leave its hooks running,
// and cgroups that its delete does not know.
func (r *Runc) runFor(ctx context.Context, limit time.Duration, intent, op string, call func(context.Context, *runc.Runc) error) error {
	err := os.Mkdir(filepath.Join(r.Bundle, intentDir), 0o700) // of the intent's files, where there is a bundle for it
	if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("container %s: %s: directory of the intent's files: %w", r.ID, intent, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	returned, ended := make(chan struct{}), make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { ended <- r.endCall(ctx, intent, returned) })
	err = call(runc.WithExtraEnv(context.WithoutCancel(ctx), r.marker(intent)), r.client(intent))
	close(returned)
	if !stop() {
		err = errors.Join(err, <-ended)
	}
	return r.explain(ctx, intent, op, err)
}

// endCall ends the runtime until its call has returned: it may not be forked yet.
func (r *Runc) endCall(ctx context.Context, intent string, returned <-chan struct{}) error {
	for {
		if err := r.WaitOrphans(ctx, intent); err != nil {
			return err
		}
		select {
		case <-returned:
			return nil
		case <-time.After(orphanRound):
		}
	}
}
