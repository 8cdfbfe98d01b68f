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

// nextField splits the first field off b. The error is ErrNotMessage.
func nextField(b []byte) (field, []byte, error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return field{}, nil, ErrNotMessage
	}
	b = b[n:]
	f := field{number: tag >> 3, wire: tag & 7}
	size := 0
	switch f.wire {
	case wireVarint:
		f.value, size = binary.Uvarint(b)
		if size <= 0 {
			return field{}, nil, ErrNotMessage
		}
	case wireFixed64:
		size = 8
	case wireFixed32:
		size = 4
	case wireBytes:
		length, n := binary.Uvarint(b)
		if n <= 0 || length > uint64(len(b)-n) {
			return field{}, nil, ErrNotMessage
		}
		b, size = b[n:], int(length)
		f.bytes = b[:size]
	default:
		return field{}, nil, ErrNotMessage
	}
	if size > len(b) {
		return field{}, nil, ErrNotMessage
	}
	return f, b[size:], nil
}

// Fields calls visit for every field of a protobuf message: text for
// length-delimited ones, value for varints. Others are skipped. The error is
// ErrNotMessage; visit may have been called before it is found.
func Fields(message []byte, visit func(number int, text []byte, value uint64)) error {
	for len(message) > 0 {
		f, rest, err := nextField(message)
		if err != nil {
			return err
		}
		if message = rest; f.wire == wireVarint || f.wire == wireBytes {
			visit(int(f.number), f.bytes, f.value)
		}
	}
	return nil
}

// AppendNumber appends a varint field.
func AppendNumber(b []byte, number, value uint64) []byte {
	b = binary.AppendUvarint(b, number<<3|wireVarint)
	return binary.AppendUvarint(b, value)
}

// AppendText appends a length-delimited field.
func AppendText(b []byte, number uint64, text string) []byte {
	b = binary.AppendUvarint(b, number<<3|wireBytes)
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}
