package protocol

import (
	"errors"
	"strconv"
)

// Metadata keys the keeper appends to every request it forwards. Readers take
// the last value of a key: what a client sent under these names comes first.
const (
	KeyRequest = "perdure-request" // decimal number of the request, unique over keeper lives
	KeyReplay  = "perdure-replay"  // "1": an earlier worker had it already
	KeyOldest  = "perdure-oldest"  // decimal: lowest unanswered request number, Wait excluded
)

// gRPC status codes the keeper answers with itself.
const (
	CodeInvalidArgument   = 3
	CodeResourceExhausted = 8
	CodeUnimplemented     = 12
	CodeInternal          = 13
)

// ErrNotMessage means that bytes are no protobuf message.
var ErrNotMessage = errors.New("the data is no protobuf message")

// Request is what the keeper needs to know of a ttrpc Request; Service and
// Method point into it.
type Request struct {
	Service, Method []byte
	Timeout         int64 // nanoseconds the client gave it; 0: none
}

// ParseRequest reads service (1), method (2) and timeout_nano (4) of a ttrpc
// Request, the last one of each, as protobuf has it. Everything else is skipped.
func ParseRequest(b []byte) (Request, error) {
	var r Request
	err := Fields(b, func(number int, text []byte, value uint64) {
		switch {
		case number == 1 && text != nil:
			r.Service = text
		case number == 2 && text != nil:
			r.Method = text
		case number == 4 && text == nil:
			r.Timeout = int64(value)
		}
	})
	return r, err
}

// Call is what the keeper says about a request, as the worker reads it.
type Call struct {
	Request uint64 // 0: the request did not come through a keeper
	Replay  bool   // an earlier worker had it
	Oldest  uint64 // answers to lower numbers will never be asked for again
}

// ReadCall takes the keeper's words from a request's metadata; get is ttrpc's
// MD.Get or alike. The last value of a key is the keeper's.
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
	b = appendMetadata(b, KeyOldest, strconv.FormatUint(c.Oldest, 10))
	if timeout != 0 {
		b = AppendNumber(b, 4, uint64(timeout))
	}
	return b
}

// AppendStatus appends a whole response frame that carries an error status.
func AppendStatus(b []byte, stream uint32, code uint64, message string) []byte {
	var status []byte
	status = AppendNumber(status, 1, code)
	status = AppendText(status, 2, message)
	data := AppendText(nil, 1, string(status))
	b = AppendHeader(b, Header{Length: uint32(len(data)), Stream: stream, Type: FrameResponse})
	return append(b, data...)
}

func appendMetadata(b []byte, key, value string) []byte {
	pair := AppendText(nil, 1, key)
	pair = AppendText(pair, 2, value)
	return AppendText(b, 5, string(pair))
}
