package proc

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what a process has in memory that it shares with nobody, in bytes.
type Memory struct {
	Private int64 // Private_Clean and Private_Dirty of smaps_rollup, proc(5)
	// Dirty is the part that was written, and so is there for each process. The
	// rest is of files, the program's own first: private to the only process
	// that runs it, shared from the second on.
	Dirty int64
}

// String is for people: "3.9 MiB (1.1 MiB written)".
func (m Memory) String() string { return fmt.Sprintf("%s (%s written)", mib(m.Private), mib(m.Dirty)) }

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// PrivateMemory returns the private memory of process pid.
func PrivateMemory(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	f, err := os.Open(path)
	if err != nil {
		return Memory{}, err
	}
	defer f.Close()
	var m Memory
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		if name != "Private_Clean" && name != "Private_Dirty" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("%s: %s: %w", path, name, err)
		}
		m.Private += kib << 10
		if name == "Private_Dirty" {
			m.Dirty += kib << 10
		}
	}
	return m, lines.Err()
}
