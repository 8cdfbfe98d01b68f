// Package proc looks at and ends processes of this machine. A process is
// always ended through a pidfd, so that a pid that was used again is never hit.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is what /proc tells of one process at one moment.
type Process struct {
	Pid    int
	Parent int
	State  byte   // R, S, D, Z ... of proc(5)
	Name   string // comm: at most 15 bytes
	Args   []string
}

// Read returns the process pid. A process that is gone is os.ErrNotExist.
func Read(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	p, err := readStat(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, err
	}
	p.Pid = pid
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil {
		return Process{}, gone(err)
	}
	if line = bytes.TrimRight(line, "\x00"); len(line) > 0 {
		p.Args = strings.Split(string(line), "\x00")
	}
	return p, nil
}

// readStat reads name, state and parent out of a stat file. The name stands in
// brackets and may itself contain brackets and spaces.
func readStat(path string) (Process, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Process{}, gone(err)
	}
	open, shut := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 0 || shut < open {
		return Process{}, fmt.Errorf("%s has no name in brackets", path)
	}
	fields := strings.Fields(string(data[shut+1:]))
	if len(fields) < 2 {
		return Process{}, fmt.Errorf("%s has %d fields after the name", path, len(fields))
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, fmt.Errorf("%s: parent: %w", path, err)
	}
	return Process{Parent: parent, State: fields[0][0], Name: string(data[open+1 : shut])}, nil
}

// gone turns ESRCH, which /proc answers for a process that ends while it is
// read, into os.ErrNotExist.
func gone(err error) error {
	if strings.Contains(err.Error(), "no such process") {
		return errors.Join(os.ErrNotExist, err)
	}
	return err
}

// All returns every process that could be read, in order of pid.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := Read(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Select returns the processes for which keep says true.
func Select(keep func(Process) bool) ([]Process, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var kept []Process
	for _, p := range all {
		if keep(p) {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

// Mentions reports whether text occurs in the process's arguments,
// environment or control groups.
func (p Process) Mentions(text string) bool {
	for _, file := range []string{"cmdline", "environ", "cgroup"} {
		data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), file))
		if err == nil && bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}

// String is what a report prints of a process.
func (p Process) String() string {
	what := strings.Join(p.Args, " ")
	if what == "" {
		what = "[" + p.Name + "]"
	}
	return fmt.Sprintf("pid %d (parent %d, state %c): %s", p.Pid, p.Parent, p.State, what)
}
