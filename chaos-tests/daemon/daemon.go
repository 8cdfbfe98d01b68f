package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"

	"perdure/chaos-tests/wait"
)

// Options are the choices of whoever starts a daemon. The zero value is fit
// for use.
type Options struct {
	LogLevel string   // containerd's word for it; "info" when empty
	Env      []string // added to the daemon's environment, which its shims inherit
	// Serving is called at every start, when the daemon answers its clients but
	// before any shim can reach it: whoever subscribes to events here misses
	// none.
	Serving func(context.Context, *client.Client) error
}

// Daemon is one private containerd, which can be stopped and started again
// without its shims.
type Daemon struct {
	dir     string
	options Options

	starts  int           // how often it was started: names the ttrpc socket
	process *os.Process   // nil while stopped
	ended   chan struct{} // closed when process has been waited for
	client  *client.Client
}

// startLimit bounds how long a daemon may take until it serves: loading shims
// is part of it.
const startLimit = 60 * time.Second

// New makes the directory of a daemon that is not yet started. Remove takes it
// away again.
func New(o Options) (*Daemon, error) {
	if o.LogLevel == "" {
		o.LogLevel = "info"
	}
	// The sockets of shims have names of 64 characters below this directory,
	// and a socket's path ends at 108 bytes: so not below a long TMPDIR.
	dir, err := os.MkdirTemp("/tmp", "pd-")
	if err != nil {
		return nil, err
	}
	d := &Daemon{dir: dir, options: o}
	return d, os.Mkdir(d.path("tmp"), 0o711)
}

func (d *Daemon) path(name string) string { return filepath.Join(d.dir, name) }

// Dir is the temporary directory that everything of the daemon's is in.
func (d *Daemon) Dir() string { return d.dir }

// State is containerd's state directory: bundles are below it.
func (d *Daemon) State() string { return d.path("state") }

// Bundle is the directory of one task.
func (d *Daemon) Bundle(namespace, id string) string {
	return filepath.Join(d.State(), "io.containerd.runtime.v2.task", namespace, id)
}

// Address is the socket for clients.
func (d *Daemon) Address() string { return d.path("c.sock") }

// Sockets is the directory in which shims listen.
func (d *Daemon) Sockets() string { return d.path("s") }

// Log is the file that the daemon and, through it, its shims write to.
func (d *Daemon) Log() string { return d.path("log") }

// Client returns a client of the running daemon; a new one after every start.
func (d *Daemon) Client() *client.Client { return d.client }

// Pid returns the daemon's process, 0 while it is stopped.
func (d *Daemon) Pid() int {
	if d.process == nil {
		return 0
	}
	return d.process.Pid
}

// Start starts the daemon and returns when it serves clients and shims.
//
// Shims keep the address that they were started with for life. Every start
// listens for them on a new one, to which the older ones are linked as the
// last step: so a shim that was waiting for the daemon's return reaches it only
// after Options.Serving has been called.
func (d *Daemon) Start(ctx context.Context) error {
	if d.process != nil {
		return errors.New("containerd is already running")
	}
	d.starts++
	if err := os.WriteFile(d.path("config.toml"), []byte(d.config(d.ttrpc(d.starts))), 0o600); err != nil {
		return err
	}
	if err := d.launch(); err != nil {
		return err
	}
	if err := d.connect(ctx); err != nil {
		return errors.Join(err, d.Stop(ctx))
	}
	if d.options.Serving != nil {
		if err := d.options.Serving(ctx, d.client); err != nil {
			return errors.Join(err, d.Stop(ctx))
		}
	}
	return d.link()
}

func (d *Daemon) ttrpc(start int) string { return d.path(fmt.Sprintf("t%d", start)) }

// link lets all earlier addresses for shims lead to the present one.
func (d *Daemon) link() error {
	for i := 1; i < d.starts; i++ {
		next := d.path("t.next")
		if err := os.Symlink(d.ttrpc(d.starts), next); err != nil {
			return err
		}
		if err := os.Rename(next, d.ttrpc(i)); err != nil {
			return err
		}
	}
	return nil
}

// launch starts the process. It is killed when this program dies, however
// that happens: the thread that started it stays for as long as it lives, as
// the kernel ties the parent death signal to the thread.
func (d *Daemon) launch() error {
	cmd, err := d.command()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() //nolint:errcheck // how it ended is in its log
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	d.process, d.ended = cmd.Process, ended
	return nil
}

func (d *Daemon) command() (*exec.Cmd, error) {
	bin, err := Bin()
	if err != nil {
		return nil, err
	}
	peers, err := Peers()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(filepath.Join(peers, "containerd"), "--config", d.path("config.toml"))
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	cmd.Env = append(env, "PATH="+strings.Join([]string{bin, peers, os.Getenv("PATH")}, ":"))
	cmd.Env = append(cmd.Env, d.options.Env...)
	cmd.Dir = d.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// connect waits until the daemon answers.
func (d *Daemon) connect(ctx context.Context) error {
	c, err := client.New(d.Address(), client.WithDefaultRuntime(Runtime()))
	if err != nil {
		return fmt.Errorf("client of %s: %w", d.Address(), err)
	}
	d.client = c
	return wait.Until(ctx, startLimit, "containerd to serve", func() error {
		select {
		case <-d.ended:
			return fmt.Errorf("it ended: see %s", d.Log())
		default:
		}
		ctx, cancel := context.WithTimeout(ctx, wait.Limit(time.Second))
		defer cancel()
		_, err := c.Version(ctx)
		return err
	})
}

// Stop asks the daemon to end and waits for that; its shims go on.
func (d *Daemon) Stop(ctx context.Context) error { return d.end(ctx, syscall.SIGTERM) }

// Kill ends the daemon with SIGKILL; its shims go on.
func (d *Daemon) Kill(ctx context.Context) error { return d.end(ctx, syscall.SIGKILL) }

func (d *Daemon) end(ctx context.Context, sig syscall.Signal) error {
	if d.process == nil {
		return nil
	}
	if d.client != nil {
		d.client.Close()
		d.client = nil
	}
	if err := d.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end containerd: %w", err)
	}
	select {
	case <-d.ended:
	case <-ctx.Done():
		return fmt.Errorf("containerd did not end after %v: %w", sig, ctx.Err())
	}
	d.process = nil
	return nil
}

// Remove takes the daemon's directory away. The daemon must be stopped and
// nothing mounted below it.
func (d *Daemon) Remove() error { return os.RemoveAll(d.dir) }

// Hide takes the socket for shims away: those that connect from now on do not
// reach the daemon.
func (d *Daemon) Hide() error { return os.Rename(d.ttrpc(d.starts), d.path("t.hidden")) }

// Show brings the socket back.
func (d *Daemon) Show() error { return os.Rename(d.path("t.hidden"), d.ttrpc(d.starts)) }
