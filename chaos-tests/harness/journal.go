package harness

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"perdure/chaos-tests/daemon"
)

// CheckJournal has the container's journal read by `perdure journal`, which
// compares it with the state that was folded from it. The stock shim has no
// journal, which is no error.
func (c *Container) CheckJournal(ctx context.Context) error {
	if c.Runtime == Stock {
		return nil
	}
	bin, err := daemon.Bin()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "perdure"), "journal", c.h.Bundle(c.h.Namespace, c.ID)).CombinedOutput()
	return wrap(err, "journal of %s: %s", c.ID, out)
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
