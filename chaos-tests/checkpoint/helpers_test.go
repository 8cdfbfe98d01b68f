// Package checkpoint checks that a container can be written to an image with CRIU, and goes
// on from one. CRIU depends on the kernel's version: `make vm-test` runs these tests where
// it works.
package checkpoint

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/wait"
)

const (
	limit     = 30 * time.Second
	testLimit = 3 * time.Minute
)

// needsCRIU skips a test where CRIU does not work, or fails it where PERDURE_TEST_CRIU says
// that it has to.
func needsCRIU(t *testing.T) {
	t.Helper()
	why := criuFault()
	switch {
	case why == "":
	case os.Getenv("PERDURE_TEST_CRIU") != "":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

var criuFault = sync.OnceValue(func() string {
	said, err := exec.Command("criu", "check").CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(said)) {
		if _, cause, found := strings.Cut(line, "Error "); found {
			return "CRIU does not work on this kernel: " + strings.TrimSpace(cause)
		}
	}
	return fmt.Sprintf("criu check: %v", err)
})

// counter counts the signals USR1 in memory, says each number, and ends with it for TERM.
const counter = `i=0; trap 'i=$((i+1)); echo count-$i; echo $i >/count' USR1; trap 'exit $i' TERM; echo ready >/count; while :; do sleep 1000 & wait $!; done`

// hostNetwork leaves out the network namespace, which CRIU 3.17 cannot dump on kernel 6.12
// (what RTM_GETLINK takes has changed). Under CRI the namespace is not the container's, either.
func hostNetwork() []oci.SpecOpts {
	return []oci.SpecOpts{oci.WithHostNamespace(specs.NetworkNamespace)}
}

// count sends n signals, one by one, and waits for each to be counted.
func count(ctx context.Context, t *testing.T, c *harness.Container, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		want := fmt.Sprintln(i)
		if i == 0 {
			want = "ready\n"
		}
		counted(ctx, t, c, want)
		harness.Check(t, c.Task.Kill(ctx, syscall.SIGUSR1))
	}
	counted(ctx, t, c, fmt.Sprintln(from+n))
}

func counted(ctx context.Context, t *testing.T, c *harness.Container, want string) {
	t.Helper()
	path := fmt.Sprintf("/proc/%d/root/count", c.Task.Pid())
	harness.Check(t, wait.Until(ctx, limit, "the count of "+c.ID, func() error {
		text, err := os.ReadFile(path)
		if err == nil && string(text) != want {
			err = fmt.Errorf("it is %q, not %q", text, want)
		}
		return err
	}))
}

// exiting is the choice that the container ends with its checkpoint.
func exiting(i *client.CheckpointTaskInfo) error {
	if i.Options == nil {
		i.Options = &options.CheckpointOptions{}
	}
	i.Options.(*options.CheckpointOptions).Exit = true
	return nil
}

// running checks a task's state and pid.
func running(ctx context.Context, t *testing.T, c *harness.Container, pid uint32) {
	t.Helper()
	status, err := c.Task.Status(ctx)
	if err != nil || status.Status != client.Running || c.Task.Pid() != pid {
		t.Errorf("%s is %q with pid %d (%v), want running with %d", c.ID, status.Status, c.Task.Pid(), err, pid)
	}
}

// ends checks that a restored counter ends with its number.
func ends(ctx context.Context, t *testing.T, c *harness.Container, exits <-chan client.ExitStatus, want uint32) {
	t.Helper()
	harness.Check(t, c.Task.Kill(ctx, syscall.SIGTERM))
	select {
	case exit := <-exits:
		if exit.ExitCode() != want || exit.Error() != nil {
			t.Errorf("%s ended with %d (%v), want %d", c.ID, exit.ExitCode(), exit.Error(), want)
		}
	case <-ctx.Done():
		t.Fatalf("%s does not end: %v", c.ID, ctx.Err())
	}
}
