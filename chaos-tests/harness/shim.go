package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// workerLimit bounds how long a keeper may be without a worker.
const workerLimit = 10 * time.Second

// Shim returns how to find the processes that serve the container.
func (c *Container) Shim() proc.Shim {
	return proc.Shim{Runtime: c.Runtime, Namespace: c.h.Namespace, Group: c.Group}
}

// Keeper returns the pid of the shim's long-lived process.
func (c *Container) Keeper() (int, error) { return c.Shim().Server() }

// Worker returns the pid of the worker; it waits for one where the keeper is
// just about to start it, but not where there is no keeper.
func (c *Container) Worker(ctx context.Context) (worker int, err error) {
	err = wait.Until(ctx, workerLimit, "a worker of "+c.Group, func() (err error) {
		keeper, err := c.Keeper()
		if err != nil {
			return wait.Never(err)
		}
		worker, err = proc.Worker(keeper)
		return err
	})
	return worker, err
}

// KillWorker ends the present worker with SIGKILL, waits for its end and
// returns the pid it had. One that ended by itself just then is replaced by
// the next.
func (c *Container) KillWorker(ctx context.Context) (int, error) {
	for {
		worker, err := c.Worker(ctx)
		if err != nil {
			return 0, err
		}
		err = proc.Kill(ctx, worker, proc.IsWorker)
		if !errors.Is(err, os.ErrNotExist) {
			return worker, wrap(err, "kill worker %d of %s", worker, c.Group)
		}
	}
}

// Socket returns the path of the socket that the shim listens on.
func (c *Container) Socket() (string, error) {
	address, err := os.ReadFile(filepath.Join(c.h.Bundle(c.h.Namespace, c.ID), "address"))
	return strings.TrimPrefix(string(address), "unix://"), err
}

// taskService is the name under which the shim is called. The other one is the
// same (package conformance uses what containerd prefers).
const taskService = "containerd.task.v2.Task"

// Caller makes calls on one connection to a shim.
type Caller func(ctx context.Context, method string, req, resp proto.Message) error

// Call makes a call on the shim's socket, past containerd.
func (c *Container) Call(ctx context.Context, method string, req, resp proto.Message) error {
	return c.CallAll(func(call Caller) error { return call(ctx, method, req, resp) })
}

// CallAll makes several calls on one connection.
func (c *Container) CallAll(do func(Caller) error) error {
	socket, err := c.Socket()
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return do(func(ctx context.Context, method string, req, resp proto.Message) error {
		return errgrpc.ToNative(client.Call(ctx, taskService, method, req, resp))
	})
}

// SignalInit sends a signal to the task's init without asking containerd or the
// shim.
func (c *Container) SignalInit(sig unix.Signal) error {
	pid := int(c.Task.Pid())
	h, err := proc.Open(pid, func(p proc.Process) bool { return p.Mentions("/" + c.h.Namespace + "/" + c.ID) })
	if err != nil {
		return fmt.Errorf("init %d of %s: %w", pid, c.ID, err)
	}
	defer h.Close()
	return h.Signal(sig)
}

// AwaitEnd waits until the process pid has ended and its shim has noticed.
func AwaitEnd(ctx context.Context, pid int) error {
	return wait.Until(ctx, workerLimit, fmt.Sprintf("process %d to end", pid), func() error {
		_, err := proc.Read(pid)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

// BundleDir is the container's bundle.
func (c *Container) BundleDir() string { return c.h.Bundle(c.h.Namespace, c.ID) }
