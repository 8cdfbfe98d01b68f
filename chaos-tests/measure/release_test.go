package measure

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"perdure/chaos-tests/daemon"
	"perdure/chaos-tests/harness"
	"perdure/internal/crash"
)

const keeperName = "containerd-shim-perdure-v2"

// Crash points are compiled out of what is installed.
func TestReleaseHasNoCrashPoints(t *testing.T) {
	bin, err := daemon.Bin()
	harness.Check(t, err)
	words := []string{
		"PERDURE_CRASH_DIR", "an error, as armed", string(crash.AfterIntent), string(crash.AfterLaunched), string(crash.AfterEffect),
		string(crash.AfterOutcome), string(crash.BeforeRecord), string(crash.BeforeSettle), string(crash.BeforeRelease),
	}
	own := []string{"PERDURE_CRASH_DIR", "keeper-start", "keeper-exit", string(crash.AfterReap), string(crash.BeforeExit)}
	for _, name := range []string{keeperName, "perdure"} {
		if found := contained(t, filepath.Join(bin, name), append(words, own...)); len(found) > 0 {
			t.Errorf("%s contains %q", name, found)
		}
	}
	// The builds of the tests do contain them: so they are found where they are.
	if found := contained(t, filepath.Join(bin, "test", "perdure-crashpoints"), words); len(found) != len(words) {
		t.Errorf("the worker with crash points contains only %q of %q", found, words)
	}
	if found := contained(t, filepath.Join(bin, "test", "crashpoints", keeperName), own); len(found) != len(own) {
		t.Errorf("the keeper with crash points contains only %q of %q", found, own)
	}
}

// contained returns those of the words that occur in a file.
func contained(t *testing.T, path string, words []string) []string {
	t.Helper()
	content, err := os.ReadFile(path)
	harness.Check(t, err)
	var found []string
	for _, word := range words {
		if bytes.Contains(content, []byte(word)) {
			found = append(found, word)
		}
	}
	return found
}
