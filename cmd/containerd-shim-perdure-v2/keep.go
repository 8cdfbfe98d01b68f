package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper"
)

// Descriptors that start gives to a keeper, besides a non-blocking stderr.
const (
	fdListener = 3
	fdLife     = 4 // the flock on <socket>.keeper: open as long as the keeper lives
)

// keep is the keeper process.
func keep(f flags) error {
	for _, fd := range []int{0, 1, 2, fdListener, fdLife} {
		unix.CloseOnExec(fd)
	}
	worker, err := workerProgram()
	if err != nil {
		return err
	}
	config := keeper.Config{
		Listener:  fdListener,
		Log:       2,
		Worker:    worker,
		Env:       workerEnv(os.Environ()),
		Version:   version,
		Namespace: f.namespace,
		Group:     f.id,
		Limits:    keeper.DefaultLimits(),
	}
	if ms, err := strconv.Atoi(os.Getenv("PERDURE_HANG_MS")); err == nil && ms > 0 {
		config.Hang = time.Duration(ms) * time.Millisecond
	}
	return keeper.Run(config)
}

// savedProcs carries the GOMAXPROCS that start was called with past the keeper,
// which itself has one goroutine worth speaking of.
const savedProcs = "PERDURE_GOMAXPROCS"

func workerEnv(env []string) []string {
	var out []string
	for _, entry := range env {
		key, value, _ := strings.Cut(entry, "=")
		switch {
		case key == savedProcs && value != "":
			out = append(out, "GOMAXPROCS="+value)
		case key != savedProcs && key != "GOMAXPROCS":
			out = append(out, entry)
		}
	}
	return out
}
