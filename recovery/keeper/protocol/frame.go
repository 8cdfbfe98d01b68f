package protocol

import (
	"encoding/binary"
	"fmt"
)

// Limits of a ttrpc frame, in bytes (ttrpc PROTOCOL.md, "Message Frame").
const (
	HeaderSize = 10
	MaxFrame   = 4 << 20 // data of one frame, either direction
	// Room is kept free in a request for what the keeper appends to it.
	Room       = 512
	MaxRequest = MaxFrame - Room
	// From here on the first byte of a header is not zero, which ttrpc
	// reserves: such a stream is not ttrpc and cannot be followed further.
	absurd = 1 << 24
)

// Frame types and the flags of a request.
const (
	FrameRequest  = 1
	FrameResponse = 2
	FrameData     = 3
)

// Header is the fixed part of a ttrpc frame.
type Header struct {
	Length uint32 // bytes of data after the header
	Stream uint32 // odd for streams opened by the client
	Type   uint8
	Flags  uint8
}

// ParseHeader reads the first HeaderSize bytes of b.
func ParseHeader(b []byte) Header {
	return Header{
		Length: binary.BigEndian.Uint32(b),
		Stream: binary.BigEndian.Uint32(b[4:]),
		Type:   b[8],
		Flags:  b[9],
	}
}

// AppendHeader appends h in wire form to b.
func AppendHeader(b []byte, h Header) []byte {
	b = binary.BigEndian.AppendUint32(b, h.Length)
	b = binary.BigEndian.AppendUint32(b, h.Stream)
	return append(b, h.Type, h.Flags)
}

// Frame is one whole frame. Raw is nil when the frame was longer than the
// reader's limit: its bytes were skipped, and only the header is left.
type Frame struct {
	Header
	Raw      []byte // header and data, as they came
	Oversize bool
}

// Data is what follows the header.
func (f Frame) Data() []byte { return f.Raw[min(HeaderSize, len(f.Raw)):] }

// MalformedError says that a byte stream is not ttrpc.
type MalformedError struct{ Header Header }

func (e *MalformedError) Error() string {
	return fmt.Sprintf("malformed ttrpc frame: length %d, stream %d, type %d, flags %d",
		e.Header.Length, e.Header.Stream, e.Header.Type, e.Header.Flags)
}

// Assembler cuts a byte stream into whole frames. Its zero value is ready.
// It holds at most one unfinished frame besides what the last Write brought.
type Assembler struct {
	Limit uint32 // longest data accepted; longer frames are skipped
	buf   []byte
	lent  bool   // buf is the caller's
	skip  uint32 // bytes of an oversized frame still to be thrown away
}

// Write adds bytes as they were read; call Next until it has no frame left.
// Until then p is borrowed: only what is left of it is copied.
func (a *Assembler) Write(p []byte) {
	if a.lent = len(a.buf) == 0; a.lent {
		a.buf = p
		return
	}
	a.buf = append(a.buf, p...)
}

// Reset forgets an unfinished frame and gives its memory back.
func (a *Assembler) Reset() { a.buf, a.skip = nil, 0 }

// Next returns the next whole frame; its bytes are good until the next Write.
// The error is a *MalformedError, after which the stream cannot be used.
func (a *Assembler) Next() (Frame, bool, error) {
	a.discard()
	if a.skip > 0 || len(a.buf) < HeaderSize {
		a.keep()
		return Frame{}, false, nil
	}
	h := ParseHeader(a.buf)
	switch {
	case h.Length >= absurd:
		return Frame{}, false, &MalformedError{h}
	case h.Length > a.Limit:
		a.consume(HeaderSize)
		a.skip = h.Length
		a.discard()
		return Frame{Header: h, Oversize: true}, true, nil
	}
	end := HeaderSize + int(h.Length)
	if len(a.buf) < end {
		a.keep()
		return Frame{}, false, nil
	}
	f := Frame{Header: h, Raw: a.buf[:end:end]}
	a.consume(end)
	return f, true, nil
}

// keep copies what was borrowed.
func (a *Assembler) keep() {
	if a.lent {
		a.buf, a.lent = append([]byte(nil), a.buf...), false
	}
}

func (a *Assembler) discard() {
	n := min(int(a.skip), len(a.buf))
	a.skip -= uint32(n)
	a.consume(n)
}

func (a *Assembler) consume(n int) {
	if a.buf = a.buf[n:]; len(a.buf) == 0 {
		a.buf = nil
	}
}
