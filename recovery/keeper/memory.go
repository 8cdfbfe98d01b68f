package keeper

import (
	"errors"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// memory is what keeps a keeper small: little garbage is made, and collected
// seldom, but then all of it. Left alone, the runtime would let a megabyte come
// together, and its bookkeeping for the first few collections costs half a
// megabyte more. Only the keeper's one goroutine touches it.
var memory struct {
	spare [][]byte // empty, for whoever needs one next
	waste int      // bytes let go since the last collection, about
}

const (
	maxSpare    = 8 << 10 // bytes of one that is kept
	maxSpares   = 8
	maxWaste    = 256 << 10
	eventWaste  = 256      // bytes that a round lets go per event, about
	memoryLimit = 64 << 20 // from here on the runtime collects as well
)

// ownMemory makes tendMemory the one who collects.
func ownMemory() {
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
}

// borrow returns an empty slice, maybe with room; give it back.
func borrow() []byte {
	last := len(memory.spare) - 1
	if last < 0 {
		return nil
	}
	p := memory.spare[last]
	memory.spare = memory.spare[:last]
	return p
}

// giveBack takes what came from borrow, and was appended to since.
func giveBack(p []byte) {
	switch {
	case cap(p) > maxSpare:
		memory.waste += cap(p)
	case cap(p) > 0 && len(memory.spare) < maxSpares:
		memory.spare = append(memory.spare, p[:0])
	}
}

// tendMemory gives memory back to the system when there is enough to give.
func tendMemory() {
	if memory.waste > maxWaste {
		memory.waste = 0
		debug.FreeOSMemory()
	}
}

// buffer holds bytes that a socket has not taken yet. Mostly it takes them at
// once, and then the buffer has no memory.
type buffer struct {
	bytes []byte
	done  int
}

func (b *buffer) size() int { return len(b.bytes) - b.done }

func (b *buffer) add(p []byte) {
	if b.bytes == nil {
		b.bytes = borrow()
	}
	if b.done > b.size() {
		b.bytes = b.bytes[:copy(b.bytes, b.bytes[b.done:])]
		b.done = 0
	}
	b.bytes = append(b.bytes, p...)
}

// flush writes what fits without waiting; it is no error when something is left.
func (b *buffer) flush(fd int) error {
	for b.size() > 0 {
		n, err := unix.Write(fd, b.bytes[b.done:])
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		default:
			b.done += n
		}
	}
	b.reset()
	return nil
}

// reset forgets what is left.
func (b *buffer) reset() {
	if b.bytes != nil {
		giveBack(b.bytes)
	}
	*b = buffer{}
}
