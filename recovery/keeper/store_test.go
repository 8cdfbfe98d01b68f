package keeper_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

func TestStoreFetchDrop(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	client := k.dial()
	pipe := filepath.Join(k.dir, "pipe")
	must(t, unix.Mkfifo(pipe, 0o600))
	for _, name := range []string{"c/a", "c/a/b", "c/ab"} {
		k.ask(client, "Store", name+" "+pipe)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("kept")
	must(t, err)
	kill(t, first.PID)
	if e := k.hello(); len(e.Names) != 3 {
		t.Errorf("names %v, want three", e.Names)
	}
	if got := k.ask(client, "Read", "c/a/b"); got != "kept" {
		t.Errorf("read %q from a stored fifo", got)
	}
	k.ask(client, "Drop", "c/a")
	for name, want := range map[string]string{"c/a": "not stored", "c/a/b": "not stored", "c/ab": "more"} {
		if want == "more" {
			_, err = f.WriteString(want)
			must(t, err)
		}
		if got := k.ask(client, "Read", name); got != want {
			t.Errorf("read of %s: %q, want %q", name, got, want)
		}
	}
}

// A worker that dies after letting go of names, but before its answer, finds them
// again; with the answer, or with the client, they are gone.
// TestWhatIsNotStoredIsSaid: a worker goes on only with what the keeper really has.
func TestWhatIsNotStoredIsSaid(t *testing.T) {
	k := run(t, "normal", "")
	client := k.dial()
	if a := <-call(client, "Store", " /dev/null"); a.err == nil || !strings.Contains(a.err.Error(), "needs a name") {
		t.Errorf("a descriptor without a name: %+v", a)
	}
	if got := k.ask(client, "Store", "null /dev/null"); got != "null" {
		t.Errorf("with one: %q", got)
	}
}

func TestDropAfter(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	client, leaver := k.dial(), k.dial()
	for _, name := range []string{"a", "a/b", "ab", "z"} {
		k.ask(client, "Store", name+" /dev/null")
	}
	noted := func() { k.next("the drop", func(e event) bool { return e.Event == "noted" }) }
	dropped := call(client, "DropAfter", "a")
	noted()
	call(leaver, "DropAfter", "z")
	noted()
	if got := k.ask(client, "Read", "z"); got == "not stored" {
		t.Error("dropped before the answer")
	}
	leaver.Close()
	k.eventually("the drop with the client's end", func() bool { return k.ask(client, "Read", "z") == "not stored" })
	kill(t, first.PID)
	if e := k.hello(); len(e.Names) != 3 || !contains(e.Names, "a") || !contains(e.Names, "a/b") {
		t.Errorf("names %v before the answer, want all three", e.Names)
	}
	if a := <-dropped; a.err != nil {
		t.Error(a.err)
	}
	for name, want := range map[string]string{"a": "not stored", "a/b": "not stored", "ab": ""} {
		if a := <-call(client, "Read", name); a.text != want {
			t.Errorf("%s after the answer: %+v, want %q", name, a, want)
		}
	}
}

func TestManyNamesInWelcome(t *testing.T) {
	k := run(t, "normal", "")
	first := k.hello()
	client := k.dial()
	const n = 1500
	for i := range n {
		k.ask(client, "Store", fmt.Sprintf("c/container-with-a-name-of-some-length-%060d/exec/%d /dev/null", i, i))
	}
	kill(t, first.PID)
	if e := k.hello(); len(e.Names) != n {
		t.Errorf("%d names, want %d", len(e.Names), n)
	}
}

// pty returns a master and the path of its slave.
func pty(t *testing.T) (*os.File, string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { master.Close() })
	raw, err := master.SyscallConn()
	must(t, err)
	var n int
	must(t, raw.Control(func(fd uintptr) {
		must(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	}))
	must(t, err)
	return master, "/dev/pts/" + strconv.Itoa(n)
}

// A pty master sent to the console listener as runc does it is not lost with a
// worker that is killed while it takes it over.
func TestConsoleMasterSurvivesTheWorker(t *testing.T) {
	k := run(t, "normal", "")
	k.hello()
	client := k.dial()
	console := filepath.Join(k.dir, "console.sock")
	k.ask(client, "Listen", console)
	if got := k.ask(client, "Accept", ""); got != "nothing" {
		t.Fatalf("accept on an idle listener: %q", got)
	}
	master, path := pty(t)
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: console, Net: "unix"})
	must(t, err)
	raw, err := master.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		_, _, err = conn.WriteMsgUnix([]byte("console"), unix.UnixRights(int(fd)), nil)
	}))
	must(t, err)
	slave, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	defer slave.Close()
	conn.Close()
	master.Close() // runc is gone; only the queued message has the master

	died := call(client, "Accept", "die") // the first worker dies with the connection
	k.next("the next worker", func(e event) bool {
		return e.Event == "hello" && e.Life == 2 && contains(e.Names, "console/conn")
	})
	if a := <-died; a.err != nil || a.text != "nothing" {
		t.Errorf("replayed accept: %+v", a)
	}
	k.ask(client, "TakeMaster", "")
	_, err = slave.WriteString("output\n")
	must(t, err)
	if got := k.ask(client, "Read", "console/master"); got != "output\r\n" {
		t.Errorf("read %q from the master", got)
	}
}

func contains(list []string, want string) bool {
	for _, have := range list {
		if have == want {
			return true
		}
	}
	return false
}

func TestWakeStartsAnIdleWorker(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprintf("input before the rest: %v", early), func(t *testing.T) {
			k := run(t, "normal", "")
			first := k.hello()
			client := k.dial()
			pipe := filepath.Join(k.dir, "pipe")
			must(t, unix.Mkfifo(pipe, 0o600))
			f, err := os.OpenFile(pipe, os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			k.ask(client, "Store", "in "+pipe)
			k.ask(client, "Wake", "in")
			if early {
				_, err = f.WriteString("x")
				must(t, err)
			}
			k.ask(client, "Rest", "")
			k.gone(first.PID)
			if !early {
				_, err = f.WriteString("x")
				must(t, err)
			}
			second := k.hello()
			// The mark was the first worker's: nobody is started for this input again.
			raw := k.dialRaw()
			k.ask(client, "Rest", "")
			k.gone(second.PID)
			for i := range 2 { // rounds of the keeper
				_, err := raw.Write(frameOf(protocol.Header{Stream: uint32(2*i + 1), Type: protocol.FrameData}, nil))
				must(t, err)
				receive(t, raw)
			}
			if workers := children(t, k.pid); len(workers) > 0 {
				t.Errorf("workers %v", workers)
			}
		})
	}
}
