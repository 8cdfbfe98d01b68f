package input

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"perdure/chaos-tests/harness"
)

// frame is one ttrpc frame (ttrpc PROTOCOL.md).
type frame struct {
	length uint32 // of what the header announces; 0: as many bytes as there are
	stream uint32
	kind   byte
	flags  byte
	data   []byte
}

const (
	request      = 1
	response     = 2
	data         = 3
	remoteClosed = 1
	remoteOpen   = 2
	maxFrame     = 4 << 20
)

func (f frame) bytes() []byte {
	if f.length == 0 {
		f.length = uint32(len(f.data))
	}
	b := binary.BigEndian.AppendUint32(nil, f.length)
	b = binary.BigEndian.AppendUint32(b, f.stream)
	return append(append(b, f.kind, f.flags), f.data...)
}

// state is a good request.
func state(t *testing.T, service, method string) []byte {
	t.Helper()
	payload, err := proto.Marshal(&api.StateRequest{ID: "subject"})
	harness.Check(t, err)
	b, err := proto.Marshal(&ttrpc.Request{Service: service, Method: method, Payload: payload})
	harness.Check(t, err)
	return b
}

const taskService = "containerd.task.v2.Task"

func TestFrames(t *testing.T) {
	s := newSubject(t)
	good := frame{stream: 1, kind: request, data: state(t, taskService, "State")}
	for _, test := range []struct {
		name string
		send []frame
		code codes.Code // of the answer
		says string
	}{
		{"a good one", []frame{good}, codes.OK, ""},
		{"too long", []frame{{stream: 1, kind: request, data: make([]byte, maxFrame+1)}}, codes.ResourceExhausted, "4 MiB"},
		{"no request", []frame{{stream: 1, kind: request, data: []byte{0xff, 0xff, 0xff}}}, codes.InvalidArgument, ""},
		{"opens a stream", []frame{{stream: 1, kind: request, flags: remoteOpen, data: good.data}}, codes.Unimplemented, "stream"},
		{"a stream that is closed", []frame{{stream: 1, kind: request, flags: remoteClosed, data: good.data}}, codes.Unimplemented, "stream"},
		{"data of no stream", []frame{{stream: 1, kind: data, data: []byte("x")}}, codes.Unimplemented, "stream"},
		{"a server's stream id", []frame{{stream: 2, kind: request, data: good.data}}, codes.InvalidArgument, "odd"},
		{"unknown method", []frame{{stream: 1, kind: request, data: state(t, taskService, "Explode")}}, codes.Unimplemented, "Explode"},
		{"unknown service", []frame{{stream: 1, kind: request, data: state(t, "example.Bomb", "State")}}, codes.Unimplemented, "example.Bomb"},
	} {
		s.try(t, test.name, func(_ context.Context, t *testing.T) {
			c := dial(t, s.socket)
			for _, f := range test.send {
				c.send(t, f.bytes())
			}
			status := c.receive(t)
			if codes.Code(status.GetStatus().GetCode()) != test.code || !strings.Contains(status.GetStatus().GetMessage(), test.says) {
				t.Errorf("the answer is %v, want %v with %q", status.GetStatus(), test.code, test.says)
			}
			// The connection is still good.
			next := good
			next.stream = 11
			c.send(t, next.bytes())
			if status := c.receive(t); status.GetStatus().GetCode() != 0 {
				t.Errorf("the next answer is %v", status.GetStatus())
			}
		})
	}
}

// Bytes that cannot be followed further end their connection, and no other.
func TestMalformedFrames(t *testing.T) {
	s := newSubject(t)
	other := dial(t, s.socket)
	for _, test := range []struct {
		name  string
		bytes []byte
	}{
		{"no ttrpc", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"of unknown type", frame{stream: 1, kind: 9, data: []byte("x")}.bytes()},
		{"a server's response", frame{stream: 1, kind: response, data: []byte("x")}.bytes()},
		{"absurdly long", frame{length: 1 << 31, stream: 1, kind: request}.bytes()},
	} {
		s.try(t, test.name, func(_ context.Context, t *testing.T) {
			c := dial(t, s.socket)
			c.send(t, test.bytes)
			c.ended(t)
		})
	}
	s.try(t, "half of one", func(_ context.Context, t *testing.T) {
		c := dial(t, s.socket)
		c.send(t, frame{length: 100, stream: 1, kind: request, data: []byte("half")}.bytes())
		harness.Check(t, c.Close())
	})
	other.send(t, frame{stream: 1, kind: request, data: state(t, taskService, "State")}.bytes())
	if status := other.receive(t); status.GetStatus().GetCode() != 0 {
		t.Errorf("another connection is answered %v", status.GetStatus())
	}
}

// Only the shim's own user is served: the socket's mode says so, and the keeper
// looks as well.
func TestAnotherUser(t *testing.T) {
	s := newSubject(t)
	s.try(t, "who has no way to the socket", func(_ context.Context, t *testing.T) {
		if c, err := dialAs(65534, s.socket); !errors.Is(err, os.ErrPermission) {
			t.Errorf("connect: %v, %v, want permission denied", c, err)
		}
	})
	s.try(t, "who has one", func(_ context.Context, t *testing.T) {
		harness.Check(t, os.Chmod(s.h.Dir(), 0o711))
		harness.Check(t, os.Chmod(s.h.Sockets(), 0o711))
		harness.Check(t, os.Chmod(s.socket, 0o777))
		defer func() {
			harness.Check(t, os.Chmod(s.socket, 0o600))
			harness.Check(t, os.Chmod(s.h.Sockets(), 0o700))
			harness.Check(t, os.Chmod(s.h.Dir(), 0o700))
		}()
		conn, err := dialAs(65534, s.socket)
		harness.Check(t, err)
		c := connection{conn}
		defer c.Close()
		_, _ = c.Write(frame{stream: 1, kind: request, data: state(t, taskService, "State")}.bytes())
		c.ended(t)
	})
}

// dialAs connects as another user. The kernel looks at the connecting thread,
// which is thrown away afterwards.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const keep = ^uintptr(0)
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(uid), keep); e != 0 {
			results <- result{nil, e}
			return
		}
		conn, err := net.Dial("unix", path)
		results <- result{conn, err}
	}()
	r := <-results
	return r.conn, r.err
}

// connection is a client of the shim that sends whatever it likes.
type connection struct{ net.Conn }

func dial(t *testing.T, path string) connection {
	t.Helper()
	c, err := net.Dial("unix", path)
	harness.Check(t, err)
	t.Cleanup(func() { c.Close() })
	harness.Check(t, c.SetDeadline(time.Now().Add(limit)))
	return connection{c}
}

func (c connection) send(t *testing.T, b []byte) {
	t.Helper()
	_, err := c.Write(b)
	harness.Check(t, err)
}

// receive reads one response.
func (c connection) receive(t *testing.T) *ttrpc.Response {
	t.Helper()
	header := make([]byte, 10)
	_, err := io.ReadFull(c, header)
	harness.Check(t, err)
	body := make([]byte, binary.BigEndian.Uint32(header))
	_, err = io.ReadFull(c, body)
	harness.Check(t, err)
	if header[8] != response {
		t.Fatalf("a frame of type %d, want a response", header[8])
	}
	r := &ttrpc.Response{}
	harness.Check(t, proto.Unmarshal(body, r))
	return r
}

// ended fails the test unless the shim closes the connection without a word.
func (c connection) ended(t *testing.T) {
	t.Helper()
	n, err := c.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%d bytes and %v, want the end of the connection", n, err)
	}
}
