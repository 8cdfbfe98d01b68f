package rendezvous

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// What cannot be found out is an error, and not the absence of a keeper.
func TestConnectable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	want := func(what string, listening bool) {
		t.Helper()
		if there, err := Connectable(path); err != nil || there != listening {
			t.Errorf("%s: %v, %v", what, there, err)
		}
	}
	want("no file", false)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	want("a listener", true)

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	there, lookErr := Connectable(path)
	_, deadErr := Dead(path)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if there || lookErr == nil || deadErr == nil {
		t.Errorf("out of descriptors: connectable %v, %v; dead: %v", there, lookErr, deadErr)
	}

	l.Close()
	want("a socket without a listener", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	want("no socket", false)
}
