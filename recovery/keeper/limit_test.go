package keeper_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// limitFiles leaves the keeper room for so many more descriptors. The returned
// function takes the limit back.
func (k *kept) limitFiles(room int) (unlimit func()) {
	k.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", k.pid))
	must(k.t, err)
	var used []int
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		must(k.t, err)
		used = append(used, fd)
	}
	limit := 0
	for ; room > 0 || slices.Contains(used, limit); limit++ {
		if !slices.Contains(used, limit) {
			room--
		}
	}
	var before unix.Rlimit
	must(k.t, unix.Prlimit(k.pid, unix.RLIMIT_NOFILE, nil, &before))
	must(k.t, unix.Prlimit(k.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(limit), Max: before.Max}, nil))
	return func() {
		k.t.Helper()
		must(k.t, unix.Prlimit(k.pid, unix.RLIMIT_NOFILE, &before, nil))
	}
}

// A keeper that is out of descriptors closes no connection, which containerd
// would take for the end of the containers: what cannot be had is tried again.
func TestOutOfDescriptors(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	before := k.dial()
	k.ask(before, "Echo", "x")
	unlimit := k.limitFiles(1)
	late := call(k.dial(), "PID", "") // accepted, but there is no room for a mirror
	k.logged("giving the worker connection 2")
	if got := k.ask(before, "Echo", "served as ever"); got != "served as ever" {
		t.Errorf("answer %q", got)
	}
	unlimit()
	if a := <-late; a.err != nil || a.text != strconv.Itoa(first.PID) {
		t.Errorf("answer %+v, want the first worker's, which is %d", a, first.PID)
	}

	// The next worker comes up, but cannot have the last connection: the limit is
	// short of the second half of its pair.
	var clients []*ttrpc.Client
	for range 3 {
		clients = append(clients, k.dial())
		k.ask(clients[len(clients)-1], "Echo", "x")
	}
	unlimit = k.limitFiles(0)
	kill(t, first.PID)
	k.logged("giving the worker connection 5")
	var waiting []chan answer
	for _, client := range append(clients, before) {
		waiting = append(waiting, call(client, "Echo", "x"))
	}
	unlimit()
	for _, w := range waiting {
		if a := <-w; a.err != nil {
			t.Error(a.err)
		}
	}
}
