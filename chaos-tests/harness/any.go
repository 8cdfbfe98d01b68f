package harness

import (
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/proto"
)

// unmarshal reads an event's payload into m.
func unmarshal(a typeurl.Any, m proto.Message) error { return proto.Unmarshal(a.GetValue(), m) }
