package protocol

import (
	"encoding/binary"
	"errors"
	"strconv"
	"time"
)

// Metadata keys the keeper appends to every request it forwards. Readers take
// the last value of a key: what a client sent under these names comes first.
const (
	KeyRequest = "perdure-request" // decimal number of the request, unique over keeper lives
	KeyReplay  = "perdure-replay"  // "1": an earlier worker had it already
	KeyAge     = "perdure-age"     // decimal nanoseconds since the keeper received it
	KeyOldest  = "perdure-oldest"  // decimal: lowest unanswered request number, Wait excluded
)

// gRPC status codes the keeper answers with itself.
const (
	CodeInvalidArgument   = 3
	CodeResourceExhausted = 8
	CodeUnimplemented     = 12
	CodeInternal          = 13
)

// ErrNotRequest means the data of a request frame is no protobuf message.
var ErrNotRequest = errors.New("data of the request frame is not a protobuf message")

// Request is what the keeper needs to know of a ttrpc Request.
type Request struct {
	Service, Method string
	Timeout         int64 // nanoseconds the client gave it; 0: none
}

// ParseRequest reads service (1), method (2) and timeout_nano (4) of a ttrpc
// Request, the last one of each, as protobuf has it. Everything else is skipped.
func ParseRequest(b []byte) (Request, error) {
	var r Request
	for len(b) > 0 {
		f, rest, err := nextField(b)
		if err != nil {
			return Request{}, err
		}
		b = rest
		switch {
		case f.number == 1 && f.wire == wireBytes:
			r.Service = string(f.bytes)
		case f.number == 2 && f.wire == wireBytes:
			r.Method = string(f.bytes)
		case f.number == 4 && f.wire == wireVarint:
			r.Timeout = int64(f.value)
		}
	}
	return r, nil
}

// Call is what the keeper says about a request, as the worker reads it.
type Call struct {
	Request uint64        // 0: the request did not come through a keeper
	Replay  bool          // an earlier worker had it
	Age     time.Duration // since the keeper received it
	Oldest  uint64        // answers to lower numbers will never be asked for again
}

// ReadCall takes the keeper's words from a request's metadata; get is ttrpc's
// MD.Get or alike.
func ReadCall(get func(key string) ([]string, bool)) Call {
	last := func(key string) uint64 {
		values, _ := get(key)
		if len(values) == 0 {
			return 0
		}
		n, err := strconv.ParseUint(values[len(values)-1], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return Call{
		Request: last(KeyRequest),
		Replay:  last(KeyReplay) == 1,
		Age:     time.Duration(last(KeyAge)),
		Oldest:  last(KeyOldest),
	}
}

// AppendCall appends c to the data of a request frame as protobuf bytes: fields
// merge and the last one wins, so nothing of the request is rewritten. A
// timeout other than 0 replaces the client's.
func AppendCall(b []byte, c Call, timeout int64) []byte {
	b = appendMetadata(b, KeyRequest, strconv.FormatUint(c.Request, 10))
	replay := "0"
	if c.Replay {
		replay = "1"
	}
	b = appendMetadata(b, KeyReplay, replay)
	b = appendMetadata(b, KeyAge, strconv.FormatInt(int64(c.Age), 10))
	b = appendMetadata(b, KeyOldest, strconv.FormatUint(c.Oldest, 10))
	if timeout != 0 {
		b = append(b, 4<<3|wireVarint)
		b = binary.AppendUvarint(b, uint64(timeout))
	}
	return b
}

// AppendStatus appends a whole response frame that carries an error status.
func AppendStatus(b []byte, stream uint32, code uint64, message string) []byte {
	var status []byte
	status = append(status, 1<<3|wireVarint)
	status = binary.AppendUvarint(status, code)
	status = appendString(status, 2, message)
	data := appendString(nil, 1, string(status))
	b = AppendHeader(b, Header{Length: uint32(len(data)), Stream: stream, Type: FrameResponse})
	return append(b, data...)
}

func appendMetadata(b []byte, key, value string) []byte {
	pair := appendString(nil, 1, key)
	pair = appendString(pair, 2, value)
	return appendString(b, 5, string(pair))
}
