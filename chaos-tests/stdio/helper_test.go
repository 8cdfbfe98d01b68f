package stdio

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"perdure/chaos-tests/harness"
)

// loggerKey comes first in the query of a logger that is a copy of the test
// binary; its value is the logger's mode, the next one the directory it writes
// to.
const loggerKey = "perdure-test-logger"

// loggerQuery makes the query for a mode.
func loggerQuery(mode, dir string) string { return loggerKey + "=" + mode + "&dir=" + dir }

// program is the path of the test binary.
func program(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	harness.Check(t, err)
	return path
}

// logger copies what it reads to files. Modes: ready (writes a byte), closes
// (closes 5 only), fails (ends at once), never (gets ready), gated (when
// dir/gate is opened), stubborn (does not end by itself or by SIGTERM), keeps
// (ends for SIGTERM only).
func logger(mode, dir string) int {
	note := func(name, format string, args ...any) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		defer f.Close()
		fmt.Fprintf(f, format+"\n", args...)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	note("called", "%s", strings.Join(append(os.Args[1:], os.Environ()...), " "))
	note("loggers", "%d", os.Getpid())
	ready := os.NewFile(5, "ready")
	switch mode {
	case "fails":
		return 7
	case "never":
		<-terminated
		return 0
	case "gated":
		gate, err := os.Open(filepath.Join(dir, "gate"))
		if err == nil {
			_, _ = gate.Read(make([]byte, 1))
		}
	}
	if mode != "closes" {
		if _, err := ready.Write([]byte{1}); err != nil {
			note("called", "not awaited any more: %v", err)
		}
	}
	_ = ready.Close()
	var copying sync.WaitGroup
	for fd, name := range map[uintptr]string{3: "stdout", 4: "stderr"} {
		copying.Go(func() {
			f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err == nil {
				_, err = io.Copy(f, os.NewFile(fd, name))
			}
			if err != nil {
				note("called", "%s: %v", name, err)
			}
		})
	}
	copying.Wait()
	note("ends", "end of output")
	switch mode {
	case "keeps":
		<-terminated
		note("ends", "terminated")
	case "stubborn":
		for range terminated {
			note("ends", "terminated, and stays")
		}
	}
	return 0
}
