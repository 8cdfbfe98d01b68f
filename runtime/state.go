package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Status is what the runtime says of its container.
type Status struct {
	Status string // created, running, paused or stopped
	Pid    int    // of init; 0 when stopped
}

// State asks the runtime; errdefs.ErrNotFound when it does not know the container.
// It belongs to no intent and leaves no file. No start may be under way.
func (r *Runc) State(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	client := r.client("")
	client.Log = "/proc/self/fd/2" // wrappers of runc count on a log; this one comes back with the error
	c, err := client.State(ctx, r.ID)
	switch {
	case errors.As(err, new(*json.SyntaxError)):
		return r.kept()
	case err != nil:
		return Status{}, r.explain(ctx, "", "state", unlogged(err))
	case c.Status == "":
		return r.kept()
	case c.Status == "created" && r.passed():
		c.Status = "running"
	}
	return Status{Status: c.Status, Pid: c.Pid}, nil
}

// unlogged puts the message in the place of a line that the runtime logged.
func unlogged(err error) error {
	said := err.Error() // go-runc's words, the log's lines, then runc's message once more
	if begin := strings.IndexByte(said, '{'); begin >= 0 {
		if text, logged := lastError([]byte(said[begin:])); logged {
			return errors.New(text)
		}
	}
	return err
}

// keptState is what runc keeps of a container, as far as it is of use here.
type keptState struct {
	Pid   int    `json:"init_process_pid"`
	Start uint64 `json:"init_process_start"`
}

// kept is State of a runtime that succeeds but does not answer, as a wrapper does that
// passes runc's exit status on and not its output (containerd's runc-fp): what runc
// itself goes by.
func (r *Runc) kept() (Status, error) {
	silent := errors.New("container " + r.ID + ": state: the runtime answered without a status")
	s, err := r.init()
	if err != nil {
		return Status{}, fmt.Errorf("%w: %w", silent, err)
	}
	switch start, err := StartTime(s.Pid); {
	case errors.Is(err, ErrZombie), errdefs.IsNotFound(err), err == nil && start != s.Start:
		return Status{Status: "stopped"}, nil
	case err != nil:
		return Status{}, fmt.Errorf("%w: %w", silent, err)
	}
	frozen, err := isFrozen(s.Pid, s.Start)
	switch {
	case err != nil:
		return Status{}, fmt.Errorf("%w: %w", silent, err)
	case frozen:
		return Status{Status: "paused", Pid: s.Pid}, nil
	case r.Unstarted() && !r.passed():
		return Status{Status: "created", Pid: s.Pid}, nil
	}
	return Status{Status: "running", Pid: s.Pid}, nil
}

// init is what runc has kept of the init process.
func (r *Runc) init() (keptState, error) {
	var s keptState
	data, err := os.ReadFile(filepath.Join(r.Root, r.ID, "state.json"))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Pid == 0 || s.Start == 0 {
		return s, errors.New("state.json has no process")
	}
	return s, nil
}

// passed says whether the init has gone on to user code although the exec fifo is there, and removes it then, as runc's
// start does last of all. Where that was killed just before, runc calls the container created for ever, and the next start
// would wait at the fifo for an init that does not come. Only runc keeps what this is known from.
func (r *Runc) passed() bool {
	s, err := r.init()
	if err != nil || !executed(s.Pid, s.Start) {
		return false
	}
	_ = os.Remove(r.execFIFO())
	return true
}

// isFrozen says whether the cgroup of a process is.
func isFrozen(pid int, start uint64) (bool, error) {
	g, err := CgroupOf(pid, start)
	if err != nil {
		return false, err
	}
	file, frozen, _ := g.freezer()
	if file == "" {
		return false, nil
	}
	state, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("process %d: freezer: %w", pid, err)
	}
	return strings.Contains(frozen, strings.TrimSpace(string(state))), nil
}
