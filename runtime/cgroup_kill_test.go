package runtime

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// What is in the cgroup ends, whatever session it has gone to and however often it forks.
func TestCgroupKill(t *testing.T) {
	c := newContainer(t, shell("while :; do (while :; do (sleep 1000 & sleep 1000); done) & sleep 1000; done"))
	stdio, pid := c.run(Stdio{}, IOOptions{Direct: true})
	g, err := CgroupOf(pid, startOf(t, pid))
	must(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	must(t, g.Kill(ctx))
	if status := reap(t, pid); status != 137 {
		t.Errorf("the init ended with %d", status)
	}
	stdio.Exited()
	must(t, g.Kill(ctx)) // nobody is left
}

// A cgroup that is not the container's alone is left alone; so is time that has run out.
func TestCgroupKillOfStrangers(t *testing.T) {
	g, sleepers := ownCgroup(t), []*exec.Cmd{}
	for range 3 {
		cmd := exec.Command("sleep", "1000")
		must(t, cmd.Start())
		sleepers = append(sleepers, cmd)
		must(t, os.WriteFile(filepath.Join(g.dir("pids", "memory"), "cgroup.procs"), []byte(itoa(cmd.Process.Pid)), 0))
	}
	must(t, g.Thaw())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.Kill(ctx, os.Getpid(), sleepers[1].Process.Pid); err == nil {
		t.Error("it was killed although a stranger is there")
	}
	if pids, err := g.Processes(); len(pids) != len(sleepers) || err != nil {
		t.Errorf("left are %v, %v, want all", pids, err)
	}
	past, end := context.WithDeadline(context.Background(), time.Now())
	defer end()
	if err := g.Kill(past); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without time: %v", err)
	}
	must(t, g.Kill(ctx))
	for _, cmd := range sleepers {
		if err := cmd.Wait(); err == nil {
			t.Error("a sleeper was not killed")
		}
	}
}
