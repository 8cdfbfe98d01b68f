package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/log"
	"github.com/containerd/ttrpc"

	"perdure/internal/crash"
	"perdure/recovery"
	"perdure/recovery/keeper/client"
	"perdure/store"
	"perdure/store/lifecycle"
	"perdure/task"
)

const (
	controlFD = 3 // the keeper's control channel
	// journalTimeout bounds the wait for a journal's lock. The last worker is
	// dead when the keeper starts the next, so a lock that is held is a
	// stranger's.
	journalTimeout = time.Second
	// gcPercent trades processor time, of which a worker uses next to none, for
	// memory, of which there is one worker's per pod: the Go heap is collected
	// from 1 MiB on instead of 4.
	gcPercent = 25
)

// worker serves the tasks of one group until the keeper's channel ends.
func worker([]string) error {
	logging := newWorkerLog(os.Getenv("PERDURE_DEBUG") != "")
	defer logging.flush()
	debug.SetGCPercent(gcPercent)
	keeper, err := client.Connect(os.NewFile(controlFD, "keeper"), version)
	if err != nil {
		return fmt.Errorf("join the keeper: %w (the worker is started by containerd-shim-perdure-v2, not by hand)", err)
	}
	welcome := keeper.Welcome()
	crash.Scope(welcome.Group)
	boot, err := bootID()
	if err != nil {
		return err
	}
	service := task.New(task.Config{
		Keeper:         keeper,
		Publisher:      task.NewPublisher(os.Getenv("TTRPC_ADDRESS")),
		Settle:         settle,
		Log:            logging,
		Now:            time.Now,
		KeeperPID:      welcome.KeeperPID,
		Namespace:      welcome.Namespace,
		Group:          welcome.Group,
		Address:        welcome.Address,
		GRPCAddress:    os.Getenv("GRPC_ADDRESS"),
		TTRPCAddress:   os.Getenv("TTRPC_ADDRESS"),
		Version:        version,
		BootID:         boot,
		ShutdownWanted: welcome.ShutdownWanted,
		Idle:           idleTime(),
	})
	keeper.OnPing(service.Ping)
	if err := adopt(keeper, service, welcome); err != nil {
		return err // the keeper starts another worker, which tries again
	}
	service.Adopted()
	go func() {
		for e := range keeper.Exits() {
			service.Exited(task.Exit(e))
		}
	}()
	server, err := ttrpc.NewServer()
	if err != nil {
		return fmt.Errorf("make ttrpc server: %w", err)
	}
	service.Register(server)
	service.RegisterAdmin(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), kicking{keeper.Listener(), service}) }()
	select {
	case <-service.Resting():
		return nil // exit code 0: the keeper starts the next worker when there is work
	case <-keeper.Done():
		return nil
	case err := <-service.Failed():
		return err
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	}
}

// idleTime is how long a worker stays without work. PERDURE_IDLE_MS overrides
// it, 0 keeps the worker for ever.
func idleTime() time.Duration {
	if ms, err := strconv.Atoi(os.Getenv("PERDURE_IDLE_MS")); err == nil && ms >= 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return 30 * time.Second
}

// kicking has unsent events tried again when containerd connects: it is back.
type kicking struct {
	net.Listener
	service *task.Service
}

func (l kicking) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	l.service.Kick()
	return conn, err
}

// adopt takes over every container the keeper stores something of. A journal
// that cannot be used is said to whoever asks for its container; any other
// failure may pass, and is returned.
func adopt(keeper *client.Client, service *task.Service, welcome client.Welcome) error {
	for _, key := range keys(welcome.Names) {
		err := adoptOne(keeper, service, key, welcome.Oldest)
		switch {
		case err == nil:
		case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrNewerSchema):
			log.L.WithError(err).WithField("container", key).Error("not re-adopted: its journal cannot be used")
			id, _ := identity(key)
			service.Broken(id, err)
		default:
			return fmt.Errorf("re-adopt %s: %w", key, err)
		}
	}
	return nil
}

// identity takes a key apart: "c/ID@INSTANCE".
func identity(key string) (id, instance string) {
	name := strings.TrimPrefix(key, "c/")
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		return name, ""
	}
	return name[:at], name[at+1:]
}

// keys are the containers' prefixes among the stored names, "c/ID@INSTANCE".
func keys(names []string) []string {
	var keys []string
	for _, name := range names {
		if parts := strings.SplitN(name, "/", 3); len(parts) == 3 && parts[0] == "c" {
			keys = append(keys, parts[0]+"/"+parts[1])
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func adoptOne(keeper *client.Client, service *task.Service, key string, oldest uint64) error {
	file, err := keeper.Fetch(key + "/journal")
	if errors.Is(err, os.ErrNotExist) {
		return abandon(keeper, service, key, oldest)
	}
	if err != nil {
		return fmt.Errorf("fetch journal: %w", err)
	}
	defer file.Close()
	journal, err := store.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), journalTimeout)
	if err != nil {
		return err
	}
	return service.Adopt(journal, oldest)
}

// abandon ends what has no journal with the keeper: nothing was done for it.
func abandon(keeper *client.Client, service *task.Service, key string, oldest uint64) error {
	_, instance := identity(key)
	dir, err := keeper.Fetch(key + "/bundle")
	if errors.Is(err, os.ErrNotExist) {
		dir, err = nil, nil // what was left of a create that is undone, or of a drop that was cut off
	}
	if err != nil {
		return fmt.Errorf("fetch bundle: %w", err)
	}
	if dir != nil {
		defer dir.Close()
	}
	return service.Abandon(key, dir, task.Owed(instance, oldest))
}

// settle joins recovery's judgement to the service.
func settle(ctx context.Context, intent lifecycle.Record, world task.Inspector) (lifecycle.Record, error) {
	return recovery.Settle(ctx, intent, world)
}

// bootID tells this boot of the machine from any other (Linux, random.c).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
