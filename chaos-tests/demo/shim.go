package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/proc"
	"perdure/chaos-tests/wait"
)

// patience bounds each single wait.
const patience = 20 * time.Second

func (s *scene) shim() proc.Shim {
	return proc.Shim{Runtime: runtime, Namespace: namespace, Group: id}
}

func (s *scene) killWorker(ctx context.Context) error {
	say("Its shim is two processes, the keeper and the worker. The worker is killed with -9.")
	keeper, err := s.shim().Server()
	if err != nil {
		return err
	}
	worker, err := proc.Worker(keeper)
	if err != nil {
		return err
	}
	if err := describe(keeper, worker); err != nil {
		return err
	}
	killed := time.Now()
	fmt.Printf("$ kill -9 %d\n", worker)
	if err := proc.Kill(ctx, worker, proc.IsWorker); err != nil {
		return err
	}
	// The question is asked while there is no worker; the next one answers.
	if _, err := s.quiet(ctx, "task", "ls"); err != nil {
		return err
	}
	fmt.Printf("The next worker answered after %v, ctr's own start included:\n", time.Since(killed).Round(time.Millisecond))
	var next int
	err = wait.Until(ctx, patience, "the next worker", func() (err error) {
		next, err = proc.Worker(keeper)
		return err
	})
	if err != nil {
		return err
	}
	if next == worker {
		return fmt.Errorf("worker %d is still there after kill -9", worker)
	}
	return describe(keeper, next)
}

// describe prints processes as ps would.
func describe(pids ...int) error {
	for _, pid := range pids {
		p, err := proc.Read(pid)
		if err != nil {
			return err
		}
		args := append([]string{filepath.Base(p.Args[0])}, p.Args[1:]...)
		fmt.Printf("  %-7d parent %-7d %s\n", p.Pid, p.Parent, strings.Join(args, " "))
	}
	return nil
}

// journal prints the timeline and checks that it holds the exit.
func (s *scene) journal(ctx context.Context) error {
	bin, err := daemon.Bin()
	if err != nil {
		return err
	}
	bundle := s.d.Bundle(namespace, id)
	say("All of it is in the container's journal.")
	fmt.Printf("$ perdure journal %s\n", bundle)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "perdure"), "journal", bundle)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	fmt.Print(string(out))
	if err != nil {
		return fmt.Errorf("perdure journal: %w", err)
	}
	for _, want := range []string{"create", "start", "exec", "exit"} {
		if !strings.Contains(string(out), want) {
			return fmt.Errorf("the journal tells of no %s", want)
		}
	}
	return nil
}
