package proc

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Shim describes how to find the process that serves one group of containers.
// Runtime is containerd's name of it (io.containerd.perdure.v2), Group the id
// of the container or pod that it was started for.
type Shim struct {
	Runtime   string
	Namespace string
	Group     string
}

// Binary returns the name of the file that containerd runs for a runtime:
// io.containerd.perdure.v2 is containerd-shim-perdure-v2.
func Binary(runtime string) string {
	parts := strings.Split(runtime, ".")
	return "containerd-shim-" + strings.Join(parts[max(0, len(parts)-2):], "-")
}

// IsServer reports whether p is the long-lived process of the shim: the keeper,
// or the whole of the stock shim. The short-lived start and delete are not.
func (s Shim) IsServer(p Process) bool {
	return len(p.Args) > 0 && filepath.Base(p.Args[0]) == Binary(s.Runtime) &&
		follows(p.Args, "-namespace", s.Namespace) && follows(p.Args, "-id", s.Group) &&
		!slices.Contains(p.Args, "start") && !slices.Contains(p.Args, "delete")
}

func follows(args []string, flag, value string) bool {
	i := slices.Index(args, flag)
	return i >= 0 && i+1 < len(args) && args[i+1] == value
}

// Server returns the pid of the shim's long-lived process. A child of it that
// has not become another program yet does not count.
func (s Shim) Server() (int, error) {
	found, err := Select(s.IsServer)
	if err != nil {
		return 0, err
	}
	first := slices.DeleteFunc(slices.Clone(found), func(p Process) bool {
		return slices.ContainsFunc(found, func(q Process) bool { return q.Pid == p.Parent })
	})
	if len(first) != 1 {
		return 0, fmt.Errorf("%d processes serve %s/%s, want 1: %v", len(first), s.Namespace, s.Group, first)
	}
	return first[0].Pid, nil
}

// IsWorker reports whether p is a worker that is not yet dead.
func IsWorker(p Process) bool {
	return p.State != 'Z' && p.State != 'X' && len(p.Args) == 2 && p.Args[1] == "worker"
}

// Worker returns the pid of the worker that a keeper has at this moment.
func Worker(keeper int) (int, error) {
	found, err := Select(func(p Process) bool { return p.Parent == keeper && IsWorker(p) })
	if err != nil {
		return 0, err
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("keeper %d has %d workers, want 1: %v", keeper, len(found), found)
	}
	return found[0].Pid, nil
}
