package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"perdure/store"
)

// SpoolDir is where journals of deleted containers wait, beside the bundles of
// their namespace, until containerd has taken their last events. containerd
// skips hidden directories when it loads its shims.
const SpoolDir = ".perdure"

// toSpool keeps a deleted container's journal beyond its bundle, by a second
// link to the same file, and goes on publishing from it.
func (c *container) toSpool() error {
	if err := linkInto(filepath.Join(c.journal.Meta().Bundle, store.Name), c.spoolPath()); err != nil {
		return err
	}
	// From here on, and where the bundle was gone, the keeper's descriptor is
	// what a later worker finds.
	c.svc.departing(c)
	for _, below := range []string{"/bundle", "/init", "/exec"} {
		if err := c.svc.Keeper.Drop(c.key() + below); err != nil {
			return fmt.Errorf("drop descriptors: %w", err)
		}
	}
	go func() {
		if c.outbox.drained(context.Background()) == nil {
			c.release(0)
		} // else the journal is being closed: the worker leaves
	}()
	return nil
}

// linkInto makes the second link, in a directory that another container's
// worker may remove, being empty, at any moment. Where the bundle is gone
// already there is nothing to link.
func linkInto(journal, path string) error {
	for range 10 {
		if _, err := os.Lstat(journal); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return fmt.Errorf("make spool: %w", err)
		}
		err := os.Link(journal, path)
		if err == nil || errors.Is(err, os.ErrExist) {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("link journal into spool: %w", err)
		}
	}
	return fmt.Errorf("link journal into spool: %s vanishes again and again: %w", filepath.Dir(path), os.ErrNotExist)
}

// removeSpool removes the second link, if there is one.
func (c *container) removeSpool() {
	if os.Remove(c.spoolPath()) == nil {
		_ = os.Remove(filepath.Dir(c.spoolPath())) // stays while others use it
	}
}

func (c *container) spoolPath() string {
	return filepath.Join(filepath.Dir(c.journal.Meta().Bundle), SpoolDir, c.id+"@"+c.instance+".db")
}
