// Package crash ends the worker with SIGKILL at each of its crash points, once, in the middle of a life of a container,
// and expects that nobody noticed. Package matrix does it twice in a life, and much else.
package crash

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/chaos-tests/harness"
	"perdure/chaos-tests/scene"
	"perdure/internal/crash"
)

const (
	lanes     = 6 // lives at the same time: they wait more than they work
	lifeLimit = 3 * time.Minute
)

// before are points that have to fire before another can be reached.
var before = map[string]string{
	"adopt.before-journal":  "start.after-effect",
	"adopt.after-journal":   "start.after-effect",
	"recover.after-streams": "start.after-effect",
	"recover.before-settle": "exec-start.after-effect",
	"recover.after-settle":  "exec-start.after-effect",
	"abandon.after-records": "create.after-bundle",
}

// sceneOf is the scene that passes a point.
func sceneOf(point string) string {
	op, position, _ := strings.Cut(point, ".")
	switch op {
	case "exec-kill", "exec-close-io":
		return "execs"
	case "pause", "resume", "update", "checkpoint", "close-io":
		return "freeze"
	case "sweep":
		return "shared"
	case "undo", "forget":
		return "failing"
	case "oom":
		return "oom"
	}
	if position == string(crash.AfterSpool) {
		return "spooled"
	}
	return "plain"
}

func TestEveryPoint(t *testing.T) {
	run(t, false, func(string) bool { return true })
}

// TestEveryPointWithTerminals is the same life with ttys, where stdio differs.
func TestEveryPointWithTerminals(t *testing.T) {
	run(t, true, func(point string) bool {
		op, _, _ := strings.Cut(point, ".")
		return op == "create" || op == "exec-start" || op == "recover"
	})
}

// run lives one life for each point, all with one containerd, some at the same time.
func run(t *testing.T, terminal bool, wanted func(point string) bool) {
	h, crashes := harness.NewWithCrashes(t)
	points := make(chan string)
	var all sync.WaitGroup
	for range lanes {
		all.Go(func() {
			for point := range points {
				live(t, h, crashes, point, terminal)
			}
		})
	}
	var alone []string
	for _, point := range crash.Of(crash.Worker) {
		if s, err := scene.Find(sceneOf(point)); err != nil {
			t.Error(err)
		} else if s.Alone {
			alone = append(alone, point)
		} else if wanted(point) {
			points <- point
		}
	}
	close(points)
	all.Wait()
	for _, point := range alone {
		if wanted(point) {
			live(t, h, crashes, point, terminal)
		}
	}
}

func live(t *testing.T, h *harness.Harness, crashes *harness.Crashes, point string, terminal bool) {
	s, err := scene.Find(sceneOf(point))
	if err != nil {
		t.Error(err)
		return
	}
	id := strings.ReplaceAll(point, ".", "-")
	own, err := crashes.Group(id)
	if err != nil {
		t.Error(err)
		return
	}
	armed := []string{point}
	if first, ok := before[point]; ok {
		armed = []string{first, crash.Then, point}
	}
	if err = own.Arm(armed...); err == nil {
		err = s.Play(h.Within(t, lifeLimit), scene.Stage{H: h, ID: id, Terminal: terminal})
	}
	if err == nil {
		err = own.Fired(point)
	}
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprint(s.Name, " with ", strings.Join(armed, " ")), err)
	}
}
