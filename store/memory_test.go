package store

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"perdure/store/lifecycle"
)

// memory is what an open journal adds to a process, in KiB.
type memory struct {
	Before    float64 // anonymous memory without a journal
	Anonymous float64 // more of it with one
	Heap      float64 // of that, live objects
}

// measure prints how much memory a journal takes that is open and in use.
func measure(path string) {
	debug.FreeOSMemory()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := memory{Before: anonymousKiB()}
	j, err := Open(path, 0)
	if err != nil {
		panic(err)
	}
	for range 20 {
		if _, _, err := j.Commit([]lifecycle.Record{{Op: lifecycle.OpKill, Phase: lifecycle.Failed}}, nil); err != nil {
			panic(err)
		}
	}
	debug.FreeOSMemory()
	m.Anonymous = anonymousKiB() - m.Before
	runtime.ReadMemStats(&after)
	m.Heap = (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / 1024
	if err := json.NewEncoder(os.Stdout).Encode(m); err != nil {
		panic(err)
	}
	runtime.KeepAlive(j)
}

// anonymousKiB is the memory nobody else can have: not the file's pages, which are the page cache's.
func anonymousKiB() (kib float64) {
	data, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(data)) {
		if _, err := fmt.Sscanf(line, "Anonymous: %f kB", &kib); err == nil {
			return kib
		}
	}
	panic("no anonymous memory in smaps_rollup")
}
