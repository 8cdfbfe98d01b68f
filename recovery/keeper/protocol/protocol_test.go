package protocol

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"
)

// everyMessage has one message of each type, every field of it set.
var everyMessage = []Message{
	{Type: Hello, Protocol: 1, Version: "v1"},
	{Type: Store, Call: 1, Name: "c/a@1/init/stdout"},
	{Type: Fetch, Call: 2, Name: "n"},
	{Type: Drop, Call: 1 << 63, Name: "prefix", After: 1 << 63},
	{Type: Accept, Call: 3, Listener: "l", Name: "n"},
	{Type: Wake, Name: "n", Mask: 0x19},
	{Type: ExitAck, Seq: 9},
	{Type: Hold, On: true},
	{Type: Hold},
	{Type: Watch, Pid: 1234567, Start: 42},
	{Type: Pong, Number: 5},
	{Type: WantShutdown, Call: 8},
	{Type: Leave, Call: 9, Request: 10},
	{Type: Welcome, Protocol: 1, Version: "v", KeeperPID: 7, Address: "unix:///s", Namespace: "ns", Group: "g",
		ShutdownWanted: true, Oldest: 11, More: true, Names: []string{"a", "", "b/c"}},
	{Type: Reply, Call: 1, Error: "no"},
	{Type: Conn, ID: 3},
	{Type: Exit, Seq: 1, Pid: 2, Start: 3, Status: 0x0900, At: 1 << 60},
	{Type: Ping, Number: 1, Request: 2},
}

func TestMessagesTravel(t *testing.T) {
	for _, m := range everyMessage {
		b := m.Append(nil)
		got, err := Parse(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("type %d: got %+v, %v; want %+v", m.Type, got, err, m)
		}
		for i := range b {
			if cut, err := Parse(b[:i]); err == nil {
				t.Errorf("type %d cut to %d of %d bytes parses as %+v", m.Type, i, len(b), cut)
			}
		}
		if _, err := Parse(append(b, 0)); !errors.Is(err, ErrMessage) {
			t.Errorf("type %d with a byte too many: %v", m.Type, err)
		}
	}
	if _, err := Parse(make([]byte, MaxPacket+1)); err == nil {
		t.Error("an oversized packet parses")
	}
}

func TestAssembler(t *testing.T) {
	frame := func(stream uint32, data string) []byte {
		return append(AppendHeader(nil, Header{uint32(len(data)), stream, FrameRequest, 0}), data...)
	}
	input := bytes.Join([][]byte{frame(1, "one"), frame(3, ""), frame(5, "far too long"), frame(7, "four")}, nil)
	for size := 1; size <= len(input); size++ {
		a := Assembler{Limit: 4}
		var got []Frame
		for rest := input; len(rest) > 0; {
			n := min(size, len(rest))
			a.Write(rest[:n])
			rest = rest[n:]
			for {
				f, ok, err := a.Next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				f.Raw = bytes.Clone(f.Raw)
				got = append(got, f)
			}
		}
		if len(got) != 4 || string(got[0].Data()) != "one" || len(got[1].Data()) != 0 || !got[2].Oversize ||
			got[2].Raw != nil || string(got[3].Data()) != "four" || got[3].Stream != 7 {
			t.Fatalf("in pieces of %d: %+v", size, got)
		}
		if a.buf != nil || a.skip != 0 {
			t.Errorf("in pieces of %d: %d bytes are left, %d to skip", size, len(a.buf), a.skip)
		}
	}
	a := Assembler{Limit: MaxFrame}
	a.Write([]byte("GET / HTTP/1.1"))
	var malformed *MalformedError
	if _, _, err := a.Next(); !errors.As(err, &malformed) {
		t.Errorf("no ttrpc: %v", err)
	}
}

// What is appended must be read by ttrpc as if the client had sent it, and win
// over what the client did send under the same names.
func TestAppendedCallIsReadByTTRPC(t *testing.T) {
	sent := &ttrpc.Request{
		Service: "containerd.task.v3.Task", Method: "Create", Payload: []byte("payload"), TimeoutNano: int64(time.Minute),
		Metadata: []*ttrpc.KeyValue{{Key: "x", Value: "y"}, {Key: KeyRequest, Value: "666"}, {Key: KeyReplay, Value: "1"}},
	}
	b, err := proto.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := ParseRequest(b)
	if err != nil || string(parsed.Service) != sent.Service || string(parsed.Method) != sent.Method || parsed.Timeout != sent.TimeoutNano {
		t.Errorf("parsed %+v, %v", parsed, err)
	}
	want := Call{Request: 1<<63 + 1, Replay: false, Oldest: 77}
	b = AppendCall(b, want, int64(time.Second))
	if room := len(AppendCall(nil, Call{1<<64 - 1, true, 1<<64 - 1}, 1<<63-1)); room > Room {
		t.Errorf("appended bytes may be %d, room is kept for %d", room, Room)
	}
	var got ttrpc.Request
	if err := proto.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Service != sent.Service || got.Method != sent.Method || string(got.Payload) != "payload" || got.TimeoutNano != int64(time.Second) {
		t.Errorf("request became %+v", &got)
	}
	md := ttrpc.MD{}
	for _, kv := range got.Metadata {
		md[strings.ToLower(kv.Key)] = append(md[strings.ToLower(kv.Key)], kv.Value)
	}
	if call := ReadCall(md.Get); call != want {
		t.Errorf("call %+v, want %+v", call, want)
	}
	if values, _ := md.Get("x"); len(values) != 1 || values[0] != "y" {
		t.Errorf("the client's metadata became %v", md)
	}
	if call := ReadCall(ttrpc.MD{}.Get); call != (Call{}) {
		t.Errorf("call without a keeper: %+v", call)
	}
}

func TestStatusIsReadByTTRPC(t *testing.T) {
	b := AppendStatus(nil, 7, CodeInternal, "sentence")
	h := ParseHeader(b)
	if h.Stream != 7 || h.Type != FrameResponse || int(h.Length) != len(b)-HeaderSize {
		t.Errorf("header %+v", h)
	}
	var r ttrpc.Response
	if err := proto.Unmarshal(b[HeaderSize:], &r); err != nil || r.Status.Code != CodeInternal || r.Status.Message != "sentence" {
		t.Errorf("response %+v, %v", &r, err)
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 'x'}, uint8(3))
	f.Add([]byte{0, 0, 9, 1, 0, 0, 0, 1, 1, 0, 'x'}, uint8(1))
	f.Fuzz(func(t *testing.T, input []byte, piece uint8) {
		a := Assembler{Limit: 256}
		var out []byte
		skipped := 0
		for rest := input; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			a.Write(rest[:n])
			rest = rest[n:]
			for {
				fr, ok, err := a.Next()
				if err != nil {
					return
				}
				if !ok {
					break
				}
				if fr.Oversize != (fr.Length > 256) || !fr.Oversize && len(fr.Data()) != int(fr.Length) {
					t.Fatalf("frame %+v", fr)
				}
				if fr.Oversize {
					skipped++
				}
				out = append(out, fr.Raw...)
			}
		}
		if skipped == 0 && !bytes.HasPrefix(input, out) {
			t.Fatal("frames are not what went in")
		}
	})
}

func FuzzRequest(f *testing.F) {
	b, _ := proto.Marshal(&ttrpc.Request{Service: "s", Method: "m", TimeoutNano: 5, Payload: []byte{1}})
	f.Add(b)
	f.Add([]byte{0x0b, 0x0c})
	f.Fuzz(func(t *testing.T, input []byte) {
		got, err := ParseRequest(input)
		var want ttrpc.Request
		if proto.Unmarshal(input, &want) != nil || err != nil {
			return // groups and invalid UTF-8 are judged differently, and harmlessly
		}
		if string(got.Service) != want.Service || string(got.Method) != want.Method || got.Timeout != want.TimeoutNano {
			t.Fatalf("%+v, protobuf says %+v", got, &want)
		}
		var appended ttrpc.Request
		if err := proto.Unmarshal(AppendCall(input, Call{Request: 5}, 0), &appended); err != nil || appended.Method != want.Method {
			t.Fatalf("with the keeper's words: %v, %+v", err, &appended)
		}
	})
}

func FuzzMessage(f *testing.F) {
	for _, m := range everyMessage {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, packet []byte) {
		m, err := Parse(packet)
		if err != nil {
			return
		}
		again, err := Parse(m.Append(nil))
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}
