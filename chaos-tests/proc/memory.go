package proc

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PrivateMemory returns the bytes of memory that process pid shares with
// nobody: Private_Clean and Private_Dirty of smaps_rollup.
func PrivateMemory(pid int) (int64, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum int64
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if name != "Private_Clean" && name != "Private_Dirty" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		sum += kib << 10
	}
	return sum, lines.Err()
}
