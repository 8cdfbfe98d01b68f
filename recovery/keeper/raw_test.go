package keeper_test

import (
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// serveRaw is a worker that does not speak through a ttrpc server: it misbehaves
// to the byte.
func (w *fake) serveRaw() {
	l := w.client.Listener()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go w.misbehave(conn)
	}
}

func (w *fake) misbehave(conn net.Conn) {
	if w.is("read-one-die") {
		_, _ = conn.Read(make([]byte, 1))
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	if w.is("answer-half") {
		head := make([]byte, protocol.HeaderSize)
		if _, err := io.ReadFull(conn, head); err == nil {
			_, _ = conn.Write(response(protocol.ParseHeader(head).Stream, "raw"))
		}
		return
	}
	a := protocol.Assembler{Limit: protocol.MaxFrame}
	var streams []uint32
	buf := make([]byte, 1<<16)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		a.Write(buf[:n])
		for {
			f, ok, err := a.Next()
			if err != nil {
				panic(err)
			}
			if !ok {
				break
			}
			streams = append(streams, f.Stream)
			w.say(event{Event: "request"})
		}
		if len(streams) > 0 {
			w.write(conn, streams)
		}
	}
}

// response is the frame of an answer.
func response(stream uint32, text string) []byte {
	data := protocol.AppendText(nil, 2, string(protocol.AppendText(nil, 1, text)))
	return frameOf(protocol.Header{Stream: stream, Type: protocol.FrameResponse}, data)
}

func (w *fake) write(conn net.Conn, streams []uint32) {
	ok := func(stream uint32) []byte { return response(stream, "raw") }
	die := func(b []byte) {
		if _, err := conn.Write(b); err != nil {
			panic(err)
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	first := streams[0]
	switch {
	case w.is("answer-die") && len(streams) > 1:
		die(append(ok(first), ok(streams[1])[:12]...))
	case w.is("long-then-short") && len(streams) > 1:
		// Of a client that does not read the keeper takes the long answer, and then no more.
		_, _ = conn.Write(response(first, strings.Repeat("x", 1<<20)))
		w.taken(conn)
		_, _ = conn.Write(ok(streams[1]))
		w.say(event{Event: "noted"})
	case w.is("garbage"):
		_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	case w.is("unknown-stream"):
		_, _ = conn.Write(ok(first + 1000))
	case w.is("twice"):
		_, _ = conn.Write(append(ok(first), ok(first)...))
	case w.is("data"):
		b := ok(first)
		b[8] = protocol.FrameData
		_, _ = conn.Write(b)
	}
}

// taken waits until the keeper has read everything that was written.
func (w *fake) taken(conn net.Conn) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		panic(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for left := 1; left > 0; <-tick.C {
		if err := raw.Control(func(fd uintptr) { left, err = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) }); err != nil {
			panic(err)
		}
	}
}
