package keeper_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// frame is a request frame for a method of the fake service.
func frame(stream uint32, method, in string) []byte {
	data := protocol.AppendText(nil, 1, service)
	data = protocol.AppendText(data, 2, method)
	data = protocol.AppendText(data, 3, string(protocol.AppendText(nil, 1, in)))
	return frameOf(protocol.Header{Stream: stream, Type: protocol.FrameRequest}, data)
}

func frameOf(h protocol.Header, data []byte) []byte {
	h.Length = uint32(len(data))
	return append(protocol.AppendHeader(nil, h), data...)
}

// receive reads one response and returns its stream and its status code.
func receive(t *testing.T, conn net.Conn) (stream uint32, code uint64, text string) {
	t.Helper()
	head := make([]byte, protocol.HeaderSize)
	_, err := io.ReadFull(conn, head)
	must(t, err)
	h := protocol.ParseHeader(head)
	data := make([]byte, h.Length)
	_, err = io.ReadFull(conn, data)
	must(t, err)
	must(t, protocol.Fields(data, func(number int, field []byte, _ uint64) {
		switch number {
		case 1:
			must(t, protocol.Fields(field, func(number int, _ []byte, value uint64) {
				if number == 1 {
					code = value
				}
			}))
		case 2:
			text = string(field)
		}
	}))
	return h.Stream, code, text
}

func TestRefusedFrames(t *testing.T) {
	k := run(t, "normal", "")
	conn := k.dialRaw()
	request := protocol.Header{Stream: 3, Type: protocol.FrameRequest}
	flagged, data, even := request, request, request
	flagged.Flags = 2
	data.Type = protocol.FrameData
	even.Stream = 4
	stream := uint32(3)
	for _, c := range []struct {
		name  string
		frame []byte
		code  uint64
	}{
		{"streaming request", frameOf(flagged, nil), protocol.CodeUnimplemented},
		{"data", frameOf(data, []byte("x")), protocol.CodeUnimplemented},
		{"too long", frameOf(request, make([]byte, protocol.MaxRequest+1)), protocol.CodeResourceExhausted},
		{"no protobuf", frameOf(request, []byte{0xff}), protocol.CodeInvalidArgument},
		{"even stream", frameOf(even, nil), protocol.CodeInvalidArgument},
	} {
		h := protocol.ParseHeader(c.frame)
		h.Stream += stream - 3
		copy(c.frame, protocol.AppendHeader(nil, h))
		_, err := conn.Write(c.frame)
		must(t, err)
		if got, code, _ := receive(t, conn); got != h.Stream || code != c.code {
			t.Errorf("%s: stream %d, code %d; want %d, %d", c.name, got, code, h.Stream, c.code)
		}
		stream += 10
	}
	_, err := conn.Write(frame(1, "Echo", "old stream"))
	must(t, err)
	if _, code, _ := receive(t, conn); code != protocol.CodeInvalidArgument {
		t.Errorf("descending stream: code %d", code)
	}
	// The connection is good after all that, also for the longest request.
	longest := strings.Repeat("x", protocol.MaxRequest-64)
	_, err = conn.Write(frame(stream, "Echo", longest))
	must(t, err)
	if _, code, text := receive(t, conn); code != 0 || len(text) < len(longest) {
		t.Errorf("longest request: code %d, %d bytes", code, len(text))
	}
}

func TestMalformedFramesCloseTheConnection(t *testing.T) {
	k := run(t, "normal", "")
	other := k.dial()
	response := frame(1, "Echo", "x")
	response[8] = protocol.FrameResponse
	unknown := frame(1, "Echo", "x")
	unknown[8] = 9
	for name, b := range map[string][]byte{
		"not ttrpc":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"response":         response,
		"unknown type":     unknown,
		"stream in use":    append(frame(1, "Late", "9"), frame(1, "Echo", "x")...),
		"data of a stream": append(frame(1, "Late", "9"), frameOf(protocol.Header{Stream: 1, Type: protocol.FrameData}, nil)...),
	} {
		conn := k.dialRaw()
		_, err := conn.Write(b)
		must(t, err)
		if n, err := conn.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Errorf("%s: read %d bytes, %v; want the end", name, n, err)
		}
	}
	k.ask(other, "Echo", "x")
	if len(k.seen) > 0 && k.seen[0].Life != 1 {
		t.Error("a client's garbage ended a worker")
	}
}

func TestSplitFrames(t *testing.T) {
	k := run(t, "normal", "")
	conn := k.dialRaw()
	b := append(frame(1, "Echo", "one"), frame(3, "Echo", "two")...)
	for i := range b {
		_, err := conn.Write(b[i : i+1])
		must(t, err)
	}
	got := map[uint32]bool{}
	for range 2 {
		stream, code, _ := receive(t, conn)
		got[stream] = code == 0
	}
	if !got[1] || !got[3] {
		t.Errorf("answers %v", got)
	}
}

func TestSlowReaderDoesNotGrowTheKeeper(t *testing.T) {
	k := run(t, "normal", "")
	conn := k.dialRaw()
	const n = 100
	for i := range n {
		_, err := conn.Write(frame(uint32(2*i+1), "Big", "1048576"))
		must(t, err)
	}
	for range n {
		k.request("Big")
	}
	k.ask(k.dial(), "Echo", "others are served")
	if size := k.anonymous(); size > 16<<20 {
		t.Errorf("%d MiB for 100 MiB that nobody reads", size>>20)
	}
	for range n { // and nothing was dropped
		if _, code, text := receive(t, conn); code != 0 || len(text) < 1<<20 {
			t.Fatalf("code %d, %d bytes", code, len(text))
		}
	}
}

func TestUnansweredRequestsAreBounded(t *testing.T) {
	k := run(t, "normal", `{"Pending":4194304}`)
	conn := k.dialRaw()
	b := strings.Repeat("x", 1<<20)
	written := 0
	for i := range 64 {
		must(t, conn.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := conn.Write(frame(uint32(2*i+1), "Late", b))
		written += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		must(t, err)
	}
	if written > 10<<20 {
		t.Errorf("%d MiB were taken with a limit of 4 MiB", written>>20)
	}
	k.ask(k.dial(), "Echo", "others are served")
}

// peerMain is a client of another user: it must see the end of its connection.
func peerMain(path string) int {
	conn, err := net.Dial("unix", path)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = conn.Write(frame(1, "Echo", "x"))
	if n, err := conn.Read(make([]byte, 100)); err == nil || os.IsTimeout(err) {
		fmt.Printf("read %d bytes, %v; want the end of the connection\n", n, err)
		return 1
	}
	return 0
}

func TestOtherUsersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	k := run(t, "normal", "")
	k.hello()
	// The modes of files are out of the way, so that the keeper has to judge.
	self, err := os.Executable()
	must(t, err)
	for _, path := range []string{k.socket, self} {
		for dir := path; dir != "/"; dir = dir[:max(1, strings.LastIndexByte(dir, '/'))] {
			st, err := os.Stat(dir)
			must(t, err)
			if st.Mode().Perm()&0o005 != 0o005 {
				t.Cleanup(func() { os.Chmod(dir, st.Mode()) })
				must(t, os.Chmod(dir, st.Mode()|0o005))
			}
		}
	}
	must(t, os.Chmod(k.socket, 0o666))
	cmd := exec.Command(self, "peer", k.socket)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	k.logged(fmt.Sprintf("it is of user 65534, not %d", unix.Geteuid()))
	k.ask(k.dial(), "Echo", "our own user is served")
}
