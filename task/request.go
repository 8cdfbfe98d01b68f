package task

import (
	"context"

	"github.com/containerd/ttrpc"

	"perdure/recovery/keeper/protocol"
)

// request identifies one call of a client over the lives of several workers.
type request struct {
	number uint64 // the keeper's number, 0 where there is no keeper (tests)
	replay bool   // an earlier worker had it already
	oldest uint64 // lowest unanswered number: answers below are not asked for again
}

// requestOf reads the keeper's marks, which a client cannot forge.
func requestOf(ctx context.Context) request {
	md, _ := ttrpc.GetMetadata(ctx)
	call := protocol.ReadCall(md.Get)
	return request{number: call.Request, replay: call.Replay, oldest: call.Oldest}
}
