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

// Crash points are compiled out of what is installed.
func TestReleaseHasNoCrashPoints(t *testing.T) {
	bin, err := daemon.Bin()
	harness.Check(t, err)
	words := []string{
		"PERDURE_CRASH_DIR", string(crash.AfterIntent), string(crash.AfterLaunched), string(crash.AfterEffect),
		string(crash.AfterOutcome), string(crash.BeforeRecord), string(crash.BeforeSettle), string(crash.BeforeRelease),
	}
	for _, name := range []string{"containerd-shim-perdure-v2", "perdure"} {
		if found := contained(t, filepath.Join(bin, name), words); len(found) > 0 {
			t.Errorf("%s contains %q", name, found)
		}
	}
	// The build of the tests does contain them: so they are found where they are.
	if found := contained(t, filepath.Join(bin, "test", "perdure-crashpoints"), words); len(found) != len(words) {
		t.Errorf("the build with crash points contains only %q of %q", found, words)
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
