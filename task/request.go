package task

import (
	"context"
	"strconv"

	"github.com/containerd/ttrpc"
)

// The metadata keys with which the keeper marks a forwarded request (see
// docs/keeper-protocol.md).
const (
	metaRequest = "perdure-request"
	metaReplay  = "perdure-replay"
	metaOldest  = "perdure-oldest"
)

// request identifies one call of a client over the lives of several workers.
type request struct {
	number uint64 // the keeper's number, 0 where there is no keeper (tests)
	replay bool   // an earlier worker had it already
	oldest uint64 // lowest unanswered number: answers below are not asked for again
}

// requestOf reads the keeper's marks. The keeper appends its own, so the last
// value of a key is the true one, whatever a client sent.
func requestOf(ctx context.Context) request {
	md, _ := ttrpc.GetMetadata(ctx)
	number := func(key string) uint64 {
		values, _ := md.Get(key)
		if len(values) == 0 {
			return 0
		}
		n, _ := strconv.ParseUint(values[len(values)-1], 10, 64)
		return n
	}
	return request{number: number(metaRequest), replay: number(metaReplay) == 1, oldest: number(metaOldest)}
}
