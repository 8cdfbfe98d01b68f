package keeper

import (
	"slices"
	"time"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
)

// request is a unary request whose response has not come.
type request struct {
	number  uint64
	stream  uint32
	data    []byte // of its frame, as the client sent it
	at      time.Time
	timeout time.Duration // as the client said; 0: none
	creates bool          // a Create, which makes a task
	asks    bool          // changes nothing, and is no sign that what its client has come for is under way
	wait    bool          // a Wait takes as long as its process and proves nothing
	handed  int           // workers that had it
	fresh   time.Time     // when the first of them got it
	strikes int           // of those, the ones that ended by a fault
	done    bool
	drops   []string // stored names that go with it
}

// questions are the methods that change nothing. Clients of containerd may ask about a task before containerd has come to
// its Create.
var questions = []string{"State", "Pids", "Wait", "Connect", "Stats"}

// overhead is what a pending request costs besides its data, in bytes.
const overhead = 256

func (r *request) size() int { return len(r.data) + overhead }

// method is the request's name, for people.
func (r *request) method() string {
	parsed, _ := protocol.ParseRequest(r.data)
	return string(parsed.Service) + "/" + string(parsed.Method)
}

// number makes a request of a frame.
func (k *keeper) number(f protocol.Frame) (*request, error) {
	parsed, err := protocol.ParseRequest(f.Data())
	if err != nil {
		return nil, err
	}
	k.lastNumber++
	r := &request{
		number:  k.lastNumber,
		stream:  f.Stream,
		data:    append(borrow(), f.Data()...),
		at:      k.now,
		timeout: time.Duration(parsed.Timeout),
		creates: string(parsed.Method) == "Create",
		asks:    slices.Contains(questions, string(parsed.Method)),
		wait:    string(parsed.Method) == "Wait",
	}
	if !r.wait {
		k.open = append(k.open, r)
		k.unanswered++
	}
	k.restart.needed = true
	return r, nil
}

// oldest is the unanswered request, Wait excluded, of the lowest number; nil if
// there is none.
func (k *keeper) oldest() *request {
	for len(k.open) > 0 && k.open[0].done {
		k.open[0] = nil
		k.open = k.open[1:]
	}
	if len(k.open) == 0 {
		k.open = nil
		return nil
	}
	return k.open[0]
}

// oldestNumber is the number below which no answer will be asked for again.
func (k *keeper) oldestNumber() uint64 {
	if r := k.oldest(); r != nil {
		return r.number
	}
	return k.lastNumber + 1
}

// finish marks a request answered or forgotten.
func (k *keeper) finish(r *request) {
	r.done = true
	giveBack(r.data)
	r.data = nil
	for _, prefix := range r.drops {
		k.drop(prefix)
		crash.Here("keeper-drop-after", "", crash.AfterDrop)
	}
	r.drops = nil
	if r.wait {
		return
	}
	k.unanswered--
	// Behind an old request that stays open the list would grow for ever.
	if k.oldest(); len(k.open) < 2*k.unanswered+64 {
		return
	}
	var still []*request
	for _, r := range k.open {
		if !r.done {
			still = append(still, r)
		}
	}
	k.open = still
}

// appendRequest appends r's frame as the worker gets it.
func (k *keeper) appendRequest(b []byte, r *request) []byte {
	call := protocol.Call{
		Request: r.number,
		Replay:  r.handed > 0,
		Oldest:  min(r.number, k.oldestNumber()),
	}
	var left time.Duration
	if call.Replay && r.timeout > 0 {
		left = max(1, r.timeout-k.now.Sub(r.at))
	}
	start := len(b)
	b = protocol.AppendHeader(b, protocol.Header{})
	b = append(b, r.data...)
	b = protocol.AppendCall(b, call, int64(left))
	protocol.AppendHeader(b[start:start], protocol.Header{
		Length: uint32(len(b) - start - protocol.HeaderSize),
		Stream: r.stream,
		Type:   protocol.FrameRequest,
	})
	return b
}
