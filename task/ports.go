package task

import (
	"context"
	"syscall"
	"time"

	"perdure/runtime"
	"perdure/store"
	"perdure/store/lifecycle"
	"perdure/task/options"
)

// Keeper is what this package needs of the process that outlives the worker.
type Keeper interface {
	runtime.Descriptors
	// DropAfter is Drop as soon as the answer to a request is with the client,
	// whatever becomes of this worker; 0 is at once.
	DropAfter(prefix string, request uint64) error

	// Acknowledge tells that an exit is journaled, or nobody's.
	Acknowledge(seq uint64)
	// Hold asks the keeper to drop no exit: a process without a known pid
	// may be coming up.
	Hold(on bool)
	// Watch asks the keeper never to drop the exit of this process.
	Watch(pid int, start uint64)

	// Wake starts a worker when a stored descriptor has one of the poll events.
	Wake(name string, events uint32)

	// WantShutdown remembers a Shutdown that came while tasks existed.
	WantShutdown() error
	// Leave ends the keeper once the given request is answered.
	Leave(request uint64) error
}

// Exit is one dead child of the keeper.
type Exit struct {
	Seq    uint64
	Pid    int
	Start  uint64 // clock ticks since boot, field 22 of /proc/pid/stat
	Status syscall.WaitStatus
	At     time.Time
}

// Publisher hands one event to containerd. An error means it is not known to
// have arrived, and it will be sent again, unchanged.
type Publisher interface {
	Publish(ctx context.Context, namespace string, e store.Event) error
}

// Log is the worker's own log, which containers have a say in.
type Log interface {
	// Check tells why a container's wishes cannot be followed; it changes nothing.
	Check(options.Options) error
	// Follow adds a container's wishes to those of the others in the group,
	// Leave takes them out again.
	Follow(key string, o options.Options)
	Leave(key string)
}

// Settle judges an intent that was left half done. The outcome it returns is of
// phase done, failed or undone. A done create or start carries the pid, the
// start time of which the container finds out; a done kill asks for the signal
// to be sent once more; a failed start with an exit is a process that may have
// run and is lost.
type Settle func(ctx context.Context, intent lifecycle.Record, runtime Inspector) (lifecycle.Record, error)

// Inspector tells what is left in the world of an intent.
type Inspector interface {
	WaitOrphans(ctx context.Context, intent string) error
	Ran(intent string) bool
	PidFile(intent string) (int, bool)
	IntentError(intent string) (string, bool)
	// Stray finds an exec's process, or a restored init, that the runtime has
	// started without living to write its pid.
	Stray(exec string) (pid int, ok bool)
	// Dumped reports whether the image of a checkpoint is complete.
	Dumped(intent lifecycle.Record) bool
	// Restores reports whether the init comes from a checkpoint.
	Restores() bool
	Status(ctx context.Context) (status string, err error)
	Unstarted() bool
}
