package runtime

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runc "github.com/containerd/go-runc"
)

// exitFile is where containerd 2.4.2's own shim records an init's exit, and
// where it looks for one when it cleans up.
const exitFile = "exit.json"

// WriteExit records an init's exit for readers that cannot have the journal:
// its lock is held, or they are another shim. It appears by rename.
func WriteExit(bundle string, pid int, status uint32, at time.Time) error {
	data, err := json.Marshal(runc.Exit{Timestamp: at, Pid: pid, Status: int(status)})
	if err != nil {
		return fmt.Errorf("record exit in bundle %s: %w", bundle, err)
	}
	path := filepath.Join(bundle, exitFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record exit: %w", err)
	}
	return nil
}

// ReadExit reads what WriteExit or containerd's own shim wrote.
func ReadExit(bundle string) (pid int, status uint32, at time.Time, err error) {
	data, err := os.ReadFile(filepath.Join(bundle, exitFile))
	if err != nil {
		return 0, 0, at, err
	}
	var e runc.Exit
	if err := json.Unmarshal(data, &e); err != nil || e.Timestamp.IsZero() || e.Pid <= 0 || e.Status < 0 {
		return 0, 0, at, fmt.Errorf("%s in %s is not an exit: %v", exitFile, bundle, err)
	}
	return e.Pid, uint32(e.Status), e.Timestamp, nil
}
