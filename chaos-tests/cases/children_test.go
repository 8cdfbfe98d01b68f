package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"perdure/chaos-tests/harness"
)

// spawnLimit is how long a shell may take to start its children.
const spawnLimit = 5 * time.Minute

// TestThousandsOfChildrenExitAtOnce is case 16 (containerd#3529, moby#40145): in a container without a pid namespace of
// its own every orphan is the keeper's. Hundreds of them end at the same moment as the exec that has made them, with the
// worker killed in the middle; then others with the init. Both ends are told, as they are.
func TestThousandsOfChildrenExitAtOnce(t *testing.T) {
	const children = 400 // more of them: recovery/keeper, TestFiveThousandOrphansAtOnce
	h := harness.New(t)
	ctx := h.Within(t, testLimit)
	gates, err := h.NewGates("go", "end")
	harness.Check(t, err)
	// Each child is started by a shell that ends at once, and waits for a line of its own.
	spawn := fmt.Sprintf("n=0; while [ $n -lt %d ]; do ( (%s exit 3) & ) ; n=$((n+1)); done; echo ready; ", children, gates.Await("go"))
	c, err := h.Run(ctx, "many", harness.Config{
		Args:   harness.Shell("trap 'exit 7' TERM; " + spawn + "while :; do sleep 1000 & wait $!; done"),
		Mounts: []specs.Mount{gates.Mount()},
		Spec:   []oci.SpecOpts{oci.WithHostNamespace(specs.PIDNamespace)},
	})
	harness.Check(t, err)
	harness.Check(t, c.Stdout.Await(spawnLimit, "ready"))
	e, err := c.Exec(ctx, harness.ExecConfig{ID: "e", Args: harness.Shell(spawn + gates.Await("end") + "exit 4")})
	harness.Check(t, err)
	harness.Check(t, e.Stdout.Await(spawnLimit, "ready"))

	harness.Check(t, gates.Open("end"))
	for range children {
		harness.Check(t, gates.Open("go"))
	}
	if perdure := c.Runtime != harness.Stock; perdure {
		_, err = c.KillWorker(ctx)
		harness.Check(t, err)
	}
	ended, err := e.AwaitExit(ctx)
	harness.Check(t, err)
	if status, err := c.Task.Status(ctx); err != nil || status.Status != client.Running {
		t.Errorf("the container is %v, %v", status.Status, err)
	}
	harness.Check(t, c.SignalInit(unix.SIGTERM)) // what is left of its children is killed with it
	exit, err := c.Wait(ctx)
	harness.Check(t, err)
	if ended.Code != 4 || exit.Code != 7 {
		t.Errorf("exec and init ended with %d and %d, want 4 and 7", ended.Code, exit.Code)
	}
	_, err = h.Events.Expect(limit, "many", "create", "start", "exec-added e", "exec-started e", "exit e", "exit")
	harness.Check(t, err)
}
