package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/client"
)

// logBacklog is how many lines wait for a slow disk before further ones are lost.
const logBacklog = 256

// fileLog appends lines to files in a goroutine of its own, because a disk, or a
// network that stands for one, may make a writer wait. Files are opened for each
// line: lines are few, and whoever rotates them need tell nobody.
type fileLog struct {
	mu      sync.Mutex
	backlog chan backlogged // nil until there is a line
	lost    int             // since the last line that was taken
}

type backlogged struct {
	line  []byte
	paths []string
	done  chan struct{} // closed when all before it is written
}

func (f *fileLog) write(line []byte, paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.backlog == nil {
		f.backlog = make(chan backlogged, logBacklog)
		go run(f.backlog)
	}
	if f.lost > 0 {
		line = append(fmt.Appendf(nil, "%d lines are lost: the file was too slow\n", f.lost), line...)
	}
	select {
	case f.backlog <- backlogged{line: line, paths: paths}:
		f.lost = 0
	default:
		f.lost++
	}
}

// flush waits until everything is written, for at most the limit.
func (f *fileLog) flush(limit time.Duration) {
	f.mu.Lock()
	backlog := f.backlog
	f.mu.Unlock()
	if backlog == nil {
		return
	}
	timeout := time.After(limit)
	done := make(chan struct{})
	select {
	case backlog <- backlogged{done: done}:
	case <-timeout:
		return
	}
	select {
	case <-done:
	case <-timeout:
	}
}

// run writes; that a file has stopped being writable is told to containerd's log, once.
func run(backlog <-chan backlogged) {
	bad := map[string]bool{}
	for b := range backlog {
		if b.done != nil {
			close(b.done)
		}
		for _, path := range b.paths {
			err := appendTo(path, b.line)
			if err != nil && !bad[path] {
				fmt.Fprintf(client.Stderr{}, "log_path %s cannot be written to any more: %v\n", path, err)
			}
			bad[path] = err != nil
		}
	}
}

// appendTo never opens what could make it wait for somebody: a fifo, a terminal.
func appendTo(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK|unix.O_NOCTTY, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is not a regular file any more")
	}
	if err == nil {
		_, err = f.Write(line)
	}
	return errors.Join(err, f.Close())
}
