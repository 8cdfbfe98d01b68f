package cases

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"

	"perdure/chaos-tests/harness"
	"perdure/internal/crash"
)

// TestContainerdIsKilledInTheMiddleOfACreate is case 8 (containerd#6860, 5015, 10437), at every step of a Create: when
// containerd is back, there is a created task that can be used, or nothing at all; and the id can be created again.
func TestContainerdIsKilledInTheMiddleOfACreate(t *testing.T) {
	h, crashes := harness.NewWithCrashes(t)
	ctx := h.Within(t, testLimit)
	for n, point := range steps("create.") {
		if n%3 != 0 && os.Getenv("PERDURE_TEST_ALL") == "" {
			continue // make chaos takes all of them
		}
		t.Run(point, func(t *testing.T) {
			harness.Check(t, crashes.Arm(point+" hold"))
			created := make(chan *harness.Container, 1)
			go func() {
				c, err := h.Create(ctx, "c", harness.Config{Args: harness.Shell("exit 6")})
				if err == nil {
					t.Error("a create was answered though containerd was killed in its middle")
				}
				created <- c
			}()
			harness.Check(t, crashes.Fired(point))
			harness.Check(t, h.Kill(ctx))
			harness.Check(t, crashes.Release(ctx, point))
			c := <-created
			harness.Check(t, crashes.Arm())
			harness.Check(t, h.Start(ctx))
			checkUsableOrNothing(ctx, t, h, c)
			harness.Check(t, c.Remove(ctx))
			harness.Check(t, h.Gone(ctx))

			again, err := h.Run(ctx, "c", harness.Config{Args: harness.Shell("exit 5")})
			harness.Check(t, err)
			if exit, err := again.Wait(ctx); err != nil || exit.Code != 5 {
				t.Errorf("the id used again ended with %d, %v", exit.Code, err)
			}
			harness.Check(t, again.Remove(ctx))
		})
	}
}

// steps are the crash points of one operation.
func steps(operation string) []string {
	return slices.DeleteFunc(crash.Of(crash.Worker), func(point string) bool { return !strings.HasPrefix(point, operation) })
}

// checkUsableOrNothing looks at what containerd has of a container whose Create it has not lived to see answered.
func checkUsableOrNothing(ctx context.Context, t *testing.T, h *harness.Harness, c *harness.Container) {
	t.Helper()
	err := c.Load(ctx)
	switch {
	case errdefs.IsNotFound(err):
		t.Log("nothing is there")
		harness.Check(t, h.Gone(ctx))
		return
	case err != nil:
		t.Errorf("load: %v", err)
		return
	}
	status, err := c.Task.Status(ctx)
	harness.Check(t, err)
	if status.Status != client.Created {
		t.Errorf("the task is %s, want created", status.Status)
	}
	t.Log("a created task is there")
	harness.Check(t, c.Task.Start(ctx))
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 6 {
		t.Errorf("it ended with %d, %v; want 6", exit.Code, err)
	}
}
