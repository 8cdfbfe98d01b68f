package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/ttrpc"

	"perdure/internal/crash"
	"perdure/recovery"
	"perdure/recovery/keeper/client"
	"perdure/store/lifecycle"
	"perdure/task"
)

const (
	controlFD = 3 // the keeper's control channel
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
		Machine:        task.NewMachine(),
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
	if err := service.AdoptAll(welcome.Names, welcome.Oldest); err != nil {
		return err // the keeper starts another worker, which tries again
	}
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
