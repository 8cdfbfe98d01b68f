package harness

import (
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

var overlay struct {
	sync.Once
	works bool
}

// snapshotter returns overlayfs where the kernel can mount one below dir, and
// native, which copies, elsewhere.
func snapshotter(dir string) string {
	overlay.Do(func() { overlay.works = tryOverlay(filepath.Join(dir, "overlay-probe")) })
	if overlay.works {
		return "overlayfs"
	}
	return "native"
}

func tryOverlay(dir string) bool {
	defer os.RemoveAll(dir)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if os.MkdirAll(filepath.Join(dir, name), 0o700) != nil {
			return false
		}
	}
	options := "lowerdir=" + dir + "/lower,upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	merged := filepath.Join(dir, "merged")
	if unix.Mount("overlay", merged, "overlay", 0, options) != nil {
		return false
	}
	return unix.Unmount(merged, unix.MNT_DETACH) == nil
}
