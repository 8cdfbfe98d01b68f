package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"perdure/recovery/keeper/client"
)

// The test binary is the shim where TEST_SHIM is set, and then the worker's
// program too, where it is called as that.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_SHIM") != "" && len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker":
			os.Exit(workerMain())
		case "shim-cgroup":
			os.Exit(shimCgroupMain())
		case "cleanup", "info":
			fmt.Print(strings.Join(os.Args[1:], " "))
			os.Exit(0)
		}
		main()
		os.Exit(0)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// report is what the fake worker says about itself.
type report struct {
	Welcome client.Welcome
	Env     []string
	Args    []string
	Dir     string
	PID     int
	Parent  int
	Session int
	Cgroups string
	OOM     string
}

func workerMain() int {
	c, err := client.Connect(os.NewFile(3, "control"), "fake")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		panic(err)
	}
	server.Register("test", map[string]ttrpc.Method{
		"Report": func(context.Context, func(any) error) (any, error) {
			r := report{Welcome: c.Welcome(), Env: os.Environ(), Args: os.Args, PID: os.Getpid(), Parent: os.Getppid()}
			r.Dir, _ = os.Getwd()
			r.Session, _ = unix.Getsid(0)
			cgroups, _ := os.ReadFile("/proc/self/cgroup")
			r.Cgroups = string(cgroups)
			score, _ := os.ReadFile("/proc/self/oom_score_adj")
			r.OOM = strings.TrimSpace(string(score))
			b, err := json.Marshal(r)
			return wrapperspb.String(string(b)), err
		},
		"Leave": func(context.Context, func(any) error) (any, error) {
			return wrapperspb.String(""), c.Leave(0)
		},
	})
	go func() {
		if err := server.Serve(context.Background(), c.Listener()); !errors.Is(err, net.ErrClosed) {
			panic(err)
		}
	}()
	<-c.Done()
	return 0
}
