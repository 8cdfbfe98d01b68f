package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"perdure/internal/crash"
	"perdure/recovery/keeper/rendezvous"
	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
	"perdure/task"
	"perdure/task/options"
)

const (
	totalTimeout = 4500 * time.Millisecond // containerd allows 5 s for all of it
	endTimeout   = 2500 * time.Millisecond // a live keeper ends the id
	aloneTimeout = 3 * time.Second         // the runtime's calls
	failWait     = 500 * time.Millisecond  // for a runtime to clean up whose time is up
	lockTimeout  = time.Second             // for a journal's lock, where no worker has it
	killedStatus = 137                     // 128 + SIGKILL: true only where cleanup itself killed a live init
)

// shimArgs is the command line containerd gives a shim.
type shimArgs struct {
	namespace, address, id, bundle string
	debug                          bool
}

func parseShimArgs(args []string) (shimArgs, error) {
	var a shimArgs
	flags := flag.NewFlagSet("containerd-shim-perdure-v2", flag.ContinueOnError)
	flags.StringVar(&a.namespace, "namespace", "", "containerd namespace")
	flags.StringVar(&a.address, "address", "", "containerd's gRPC address")
	flags.StringVar(&a.id, "id", "", "container id")
	flags.StringVar(&a.bundle, "bundle", "", "bundle directory")
	flags.BoolVar(&a.debug, "debug", false, "log more")
	flags.String("publish-binary", "", "ignored: events go to TTRPC_ADDRESS")
	flags.Bool("info", false, "")
	return a, flags.Parse(args)
}

// cleanup is the shim's delete: it ends what is left of a container and tells
// containerd how it ended. Called after every deletion, with the bundle as
// working directory, which may be gone.
func cleanup(args []string) error {
	a, err := parseShimArgs(args)
	if err != nil {
		return err
	}
	if a.namespace == "" || a.id == "" {
		return errors.New("-namespace and -id are required")
	}
	crash.Scope(a.id)
	if a.bundle == "" {
		if a.bundle, err = os.Getwd(); err != nil {
			return fmt.Errorf("container %s: no -bundle, and the working directory is gone: %w", a.id, err)
		}
	}
	resp, err := end(a)
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	out, err := proto.Marshal(resp)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

// end ends the container: through its keeper where that lives, because it may be
// in the middle of a call, else alone. Only a keeper that is dead, or says that
// it does not have the container, leaves it to this process; one that does not
// answer in time still works on it.
func end(a shimArgs) (*api.DeleteResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), totalTimeout)
	defer cancel()
	socket, err := socketOf(a.bundle)
	if err != nil {
		return nil, err
	}
	dead := socket == ""
	if !dead {
		if dead, err = rendezvous.Dead(socket); err != nil {
			return nil, fmt.Errorf("is the shim alive: %w", err)
		}
	}
	if !dead {
		resp := &api.DeleteResponse{}
		err := askShim(socket, task.AdminEnd, endTimeout, &api.DeleteRequest{ID: a.id}, resp)
		switch {
		case err == nil:
			return resp, nil
		case errdefs.IsNotFound(err):
			return cleanAlone(ctx, a)
		}
		if dead, _ := rendezvous.Dead(socket); !dead { // else it died meanwhile
			return nil, fmt.Errorf("the shim lives and has not ended it: %w", err)
		}
	}
	resp, err := cleanAlone(ctx, a)
	if err == nil && socket != "" {
		buryKeeper(socket)
	}
	return resp, err
}

// buryKeeper removes the socket and the locks of a dead keeper. A start, or the
// `delete` of another member of the pod, that is at it already is left to it; what
// stays is in nobody's way.
func buryKeeper(socket string) {
	if _, err := os.Lstat(socket + ".keeper"); err != nil {
		return // it has left in good order, or was another shim's
	}
	lock, err := rendezvous.LockStart(socket, 0)
	if err != nil {
		return
	}
	defer lock.Close()
	dead, err := rendezvous.Dead(socket)
	serving, failed := rendezvous.Connectable(socket)
	if err == nil && failed == nil && dead && !serving {
		_ = rendezvous.Remove(socket)
	}
}

// socketOf is the socket of the shim that served a bundle, as the bundle's file
// address says; empty where there is no such file.
func socketOf(bundle string) (string, error) {
	address, err := os.ReadFile(filepath.Join(bundle, "address"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the shim's socket: %w", err)
	}
	return rendezvous.FromAddress(strings.TrimSpace(string(address)))
}

// askShim calls the private service of the shim behind a socket.
func askShim(socket, method string, limit time.Duration, req, resp proto.Message) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return errgrpc.ToNative(client.Call(ctx, task.AdminService, method, req, resp))
}

// cleanAlone ends a container whose keeper is dead, or which its keeper no
// longer has, from what the bundle tells.
func cleanAlone(ctx context.Context, a shimArgs) (*api.DeleteResponse, error) {
	meta := store.Meta{Namespace: a.namespace, ID: a.id, Bundle: a.bundle}
	journal, err := store.Open(filepath.Join(a.bundle, store.Name), lockTimeout)
	resp := &api.DeleteResponse{ExitStatus: lifecycle.UnknownStatus}
	if err == nil {
		defer journal.Close()
		meta = journal.Meta()
		init := journal.State().Init
		resp.Pid = uint32(init.Process.Pid)
		if init.Exit != nil {
			resp.ExitStatus, resp.ExitedAt = init.Exit.Status, timestamppb.New(init.Exit.At)
		}
	} else if err := withoutJournal(a, err, &meta, resp); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	killed, err := removeFromRuntime(ctx, meta)
	if err != nil {
		return nil, err
	}
	if resp.ExitedAt == nil {
		resp.ExitedAt = timestamppb.Now()
		if killed != 0 {
			resp.Pid, resp.ExitStatus = uint32(killed), killedStatus
		}
	}
	if err := runtime.UnmountRootfs(a.bundle); err != nil {
		return nil, fmt.Errorf("unmount rootfs: %w", err)
	}
	if journal != nil {
		if err := task.EndUnseen(journal, time.Now()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		publishRest(ctx, journal)
	}
	return resp, nil
}

// withoutJournal finds out beside a journal that is missing, damaged or locked by
// somebody else what cleanAlone has to know.
func withoutJournal(a shimArgs, why error, meta *store.Meta, resp *api.DeleteResponse) error {
	o, err := options.Load(a.bundle)
	if err != nil {
		return fmt.Errorf("%w; repair or remove that file, and delete the container again", err)
	}
	meta.Runtime, meta.Root, meta.SystemdCgroup = o.Binary, o.Root, o.SystemdCgroup
	if pid, status, at, err := runtime.ReadExit(a.bundle); err == nil {
		resp.Pid, resp.ExitStatus, resp.ExitedAt = uint32(pid), status, timestamppb.New(at)
	} else if !errors.Is(why, os.ErrNotExist) {
		fmt.Fprintf(os.Stderr, "container %s: the journal cannot be read, so its exit status is not known: %v\n", a.id, why)
	}
	return nil
}

// removeFromRuntime kills what is left and removes runc's state and cgroup;
// killed is the pid of an init that was alive, 0 if none was.
func removeFromRuntime(ctx context.Context, meta store.Meta) (killed int, err error) {
	runc := runtime.New(runtime.Config{
		Namespace: meta.Namespace, ID: meta.ID, Bundle: meta.Bundle, Instance: meta.Instance,
		Binary: meta.Runtime, Root: meta.Root, SystemdCgroup: meta.SystemdCgroup,
		FailWait: failWait,
	})
	st, err := runc.State(ctx)
	if errdefs.IsNotFound(err) {
		if left := runc.RemoveCgroup(ctx); left != nil { // no reason to leave the rest
			fmt.Fprintf(os.Stderr, "container %s: %v\n", meta.ID, left)
		}
		return 0, nil
	}
	if err == nil && st.Status != "stopped" {
		killed = st.Pid
	}
	return killed, runc.Delete(ctx, "cleanup", true)
}

// publishRest sends the events that no worker is left to send. What does not
// arrive is lost with the bundle, which is said.
func publishRest(ctx context.Context, journal *store.Journal) {
	rows, err := journal.Outbox()
	publisher := task.NewPublisher(journal.Meta().TTRPCAddress)
	for _, row := range rows {
		if err == nil {
			err = publisher.Publish(ctx, journal.Meta().Namespace, row.Event)
		}
		if err == nil {
			err = journal.Acknowledge(row.Seq)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "container %s: events were not delivered: %v\n", journal.Meta().ID, err)
	}
}
