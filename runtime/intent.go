package runtime

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	intentDir = "perdure"        // in the bundle: the files of open intents
	criuDir   = "criu"           // an intent's directory for CRIU's logs
	markerEnv = "PERDURE_INTENT" // environment of a runtime call; never the container's

	// What is read of a log. A runtime's error repeats what it was given, which is up to
	// 4 MiB, and in JSON up to six times as long.
	errorTail = 32 << 20
	logTail   = 1 << 20 // of CRIU's
	lineHead  = 1024    // bytes kept of an overlong error from its start ...
	lineTail  = 3072    // ... and from its end, where the cause is
)

func (r *Runc) file(intent, kind string) string {
	return filepath.Join(r.Bundle, intentDir, intent+"."+kind)
}

func (r *Runc) marker(intent string) string {
	return markerEnv + "=" + strings.Join([]string{r.Namespace, r.ID, r.Instance, intent}, "/")
}

// PidFile is the pid the runtime wrote for an intent. The runtime renames the file
// into place, so it is whole or absent.
func (r *Runc) PidFile(intent string) (int, bool) {
	text, err := os.ReadFile(r.file(intent, "pid"))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid, err == nil && pid > 0
}

// IntentError is the last error the runtime logged for an intent, where it says that
// nothing has run. It answers for a call whose worker did not live to see its end. That
// the pid could not be written says nothing of the kind: runc and crun write it when the
// process runs, and kill it then (runc 1.1.5, utils_linux.go).
func (r *Runc) IntentError(intent string) (string, bool) {
	text, logged := r.lastWords(intent)
	if !logged || strings.Contains(text, filepath.Base(r.file(intent, "pid"))) {
		return "", false
	}
	return text, true
}

// lastWords is the last error the runtime logged for an intent.
func (r *Runc) lastWords(intent string) (string, bool) {
	log, err := readTail(r.file(intent, "log"), errorTail)
	if err != nil {
		return "", false
	}
	return lastError(log)
}

// readTail reads the last bytes of a log.
func readTail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-limit), io.SeekStart)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// lastError finds the message of the last error line of a runtime's JSON log.
func lastError(log []byte) (string, bool) {
	for len(log) > 0 {
		start := bytes.LastIndexByte(bytes.TrimRight(log, "\n"), '\n') + 1
		var line struct{ Level, Msg string }
		if json.Unmarshal(log[start:], &line) == nil && line.Msg != "" &&
			(line.Level == "error" || line.Level == "fatal" || line.Level == "panic") {
			return shorten(line.Msg), true
		}
		log = log[:start]
	}
	return "", false
}

// shorten keeps both ends of an overlong message.
func shorten(text string) string {
	text = strings.TrimSpace(text)
	if len(text) <= lineHead+lineTail {
		return text
	}
	return strings.ToValidUTF8(text[:lineHead]+" ... "+text[len(text)-lineTail:], "")
}

// Clean removes the intent's files once its outcome is journaled, but for the init's
// pid.
func (r *Runc) Clean(intent string) {
	for _, kind := range []string{"log", "json", "json.new", "sock"} {
		_ = os.Remove(r.file(intent, kind))
	}
	if target, _ := os.Readlink(filepath.Join(r.Bundle, initPid)); target != r.initPidTarget(intent) {
		_ = os.Remove(r.file(intent, "pid"))
	}
	_ = os.RemoveAll(r.file(intent, criuDir))
}

// CleanAll removes the files of every intent.
func (r *Runc) CleanAll() {
	_ = os.Remove(filepath.Join(r.Bundle, initPid))
	_ = os.RemoveAll(filepath.Join(r.Bundle, intentDir))
}

// Ran reports whether the runtime was executed for an intent: it creates its
// log file before it does anything else (runc 1.1.5, crun 1.8.1).
func (r *Runc) Ran(intent string) bool {
	_, err := os.Lstat(r.file(intent, "log"))
	return err == nil
}

// Unstarted reports whether the init still waits for Start: runc and crun keep
// an exec fifo in their state directory until the init goes on to user code.
func (r *Runc) Unstarted() bool {
	_, err := os.Lstat(r.execFIFO())
	return err == nil
}

func (r *Runc) execFIFO() string { return filepath.Join(r.Root, r.ID, "exec.fifo") }
