package keeper

import (
	"slices"
	"testing"
)

func filled(n int) *exits {
	x := &exits{}
	for i := range n {
		x.add(exit{pid: int32(1000 + i), start: uint64(i)})
	}
	return x
}

// told is what a new worker would be sent.
func told(x *exits) []uint64 {
	x.rewind()
	return untold(x)
}

func untold(x *exits) []uint64 {
	var seqs []uint64
	for e := x.next(); e != nil; e = x.next() {
		seqs = append(seqs, e.seq)
		x.sent++
	}
	return seqs
}

func TestExitsAreAcknowledgedInAnyOrder(t *testing.T) {
	x := filled(500)
	if got := untold(x); len(got) != 500 || got[0] != 1 {
		t.Fatalf("told %d exits", len(got))
	}
	for seq := uint64(500); seq > 3; seq-- {
		x.acknowledge(seq)
		x.acknowledge(seq) // a second time is nothing
	}
	x.acknowledge(2)
	x.acknowledge(9999)
	x.add(exit{pid: 7})
	if got := untold(x); !slices.Equal(got, []uint64{501}) {
		t.Errorf("this worker is told %v next, want the new one only", got)
	}
	if got := told(x); !slices.Equal(got, []uint64{1, 3, 501}) {
		t.Errorf("the next worker is told %v", got)
	}
	if len(x.list) > 80 {
		t.Errorf("%d entries are kept for 3 exits", len(x.list))
	}
	for _, seq := range []uint64{1, 3, 501} {
		x.acknowledge(seq)
	}
	if x.list != nil || x.live != 0 {
		t.Errorf("%d entries are left, %d live", len(x.list), x.live)
	}
}

func TestWatchedAndHeldExitsAreNotDropped(t *testing.T) {
	x := filled(100)
	x.watch(1000, 0)
	x.watch(1001, 99999) // another process that had this pid
	x.hold = true
	if n := x.bound(32); n != 0 {
		t.Errorf("%d dropped while held", n)
	}
	x.hold = false
	if n := x.bound(32); n != 70 {
		t.Errorf("%d dropped, want 70: down to 30, a sixteenth below the limit", n)
	}
	if got := told(x); got[0] != 1 || got[1] != 72 || len(got) != 30 {
		t.Errorf("left: %v", got)
	}
	x.acknowledge(1)
	if _, ok := x.watched[1000]; ok {
		t.Error("the watch outlives its exit")
	}
}

func TestRequestsDoNotPileUpBehindAnOldOne(t *testing.T) {
	k := &keeper{}
	add := func() *request {
		k.lastNumber++
		r := &request{number: k.lastNumber}
		k.open = append(k.open, r)
		k.unanswered++
		return r
	}
	old := add()
	for range 10000 {
		k.finish(add())
		if len(k.open) > 128 {
			t.Fatalf("%d entries for one unanswered request", len(k.open))
		}
	}
	if k.oldest() != old || k.oldestNumber() != old.number {
		t.Error("the old one is not the oldest")
	}
	k.finish(old)
	if k.oldest() != nil || k.oldestNumber() != k.lastNumber+1 {
		t.Error("something is left")
	}
}
