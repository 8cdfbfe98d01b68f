package protocol

import "encoding/binary"

// Protobuf wire types (protobuf.dev, "Encoding"); groups are refused.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// field is one field of a protobuf message.
type field struct {
	number uint64
	wire   uint64
	value  uint64 // wireVarint
	bytes  []byte // wireBytes; points into the message
}

// nextField splits the first field off b. The error is ErrNotRequest.
func nextField(b []byte) (field, []byte, error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return field{}, nil, ErrNotRequest
	}
	b = b[n:]
	f := field{number: tag >> 3, wire: tag & 7}
	size := 0
	switch f.wire {
	case wireVarint:
		f.value, size = binary.Uvarint(b)
		if size <= 0 {
			return field{}, nil, ErrNotRequest
		}
	case wireFixed64:
		size = 8
	case wireFixed32:
		size = 4
	case wireBytes:
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return field{}, nil, ErrNotRequest
		}
		b, size = b[n:], int(length)
		f.bytes = b[:size]
	default:
		return field{}, nil, ErrNotRequest
	}
	if size > len(b) {
		return field{}, nil, ErrNotRequest
	}
	return f, b[size:], nil
}

func appendString(b []byte, number uint64, s string) []byte {
	b = binary.AppendUvarint(b, number<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
