package runtime

import (
	"os"
	"path/filepath"
	"time"
)

// inventory is what CRIU writes last of an image, before it ends the dumped processes.
const inventory = "inventory.img"

// clockGrain is how much older than its writing a file may seem: file times are those of
// the last clock tick (inode_operations, current_time).
const clockGrain = 20 * time.Millisecond

// IsImage reports whether a directory has a complete image that was written after since.
func IsImage(path string, since time.Time) bool {
	info, err := os.Stat(filepath.Join(path, inventory))
	return err == nil && !info.ModTime().Before(since.Add(-clockGrain))
}
