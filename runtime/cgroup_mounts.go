package runtime

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// cgroupMount is where a hierarchy can be seen.
type cgroupMount struct {
	point string // directory it is mounted on
	root  string // the cgroup that is shown there: not "/" inside a container
}

// directory is that of a cgroup, whose path is as /proc/PID/cgroup has it.
func (m cgroupMount) directory(path string) string {
	if rest, ok := strings.CutPrefix(path, m.root); ok && (rest == "" || rest[0] == '/') {
		path = rest
	}
	return filepath.Join(m.point, path)
}

// cgroupMounts finds the hierarchies by controller, once: they are mounted at boot.
var cgroupMounts = sync.OnceValues(func() (map[string]cgroupMount, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	defer f.Close()
	return readCgroupMounts(f)
})

// readCgroupMounts reads a mountinfo (proc(5)):
//
//	34 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:1 - cgroup cgroup rw,memory
//
// Of several mounts of a hierarchy the first is taken. Paths with escaped spaces are
// not understood; nobody mounts cgroups there.
func readCgroupMounts(r io.Reader) (map[string]cgroupMount, error) {
	mounts := map[string]cgroupMount{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay's options may be long
	for lines.Scan() {
		front, back, ok := strings.Cut(lines.Text(), " - cgroup")
		if !ok {
			continue
		}
		fields, options := strings.Fields(front), strings.Fields(back)
		if len(fields) < 5 || len(options) < 2 {
			continue
		}
		m := cgroupMount{point: fields[4], root: strings.TrimSuffix(fields[3], "/")}
		names := []string{unified}
		if options[0] != "2" { // " - cgroup2 SOURCE OPTIONS", or " - cgroup SOURCE OPTIONS"
			names = strings.Split(options[len(options)-1], ",")
		}
		for _, name := range names {
			if _, known := mounts[name]; !known {
				mounts[name] = m
			}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	return mounts, nil
}
