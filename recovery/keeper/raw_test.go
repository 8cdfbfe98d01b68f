package keeper_test

import (
	"net"
	"os"

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

func (w *fake) write(conn net.Conn, streams []uint32) {
	ok := func(stream uint32) []byte {
		data := protocol.AppendText(nil, 2, string(protocol.AppendText(nil, 1, "raw")))
		b := protocol.AppendHeader(nil, protocol.Header{Length: uint32(len(data)), Stream: stream, Type: protocol.FrameResponse})
		return append(b, data...)
	}
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
