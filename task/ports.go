package task

import (
	"context"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/opencontainers/runtime-spec/specs-go"

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

// Machine is what a container's processes run on. NewMachine is the real one, and
// package runtime says what its methods promise.
type Machine interface {
	// Runtime is how the OCI runtime is called for one container.
	Runtime(runtime.Config) Runtime

	MountRootfs(bundle string, mounts []runtime.Mount) error
	UnmountRootfs(bundle string) error

	OpenIO(keeper runtime.Descriptors, prefix string, s runtime.Stdio, o runtime.IOOptions) (IO, error)
	ResumeIO(keeper runtime.Descriptors, prefix string, s runtime.Stdio, o runtime.IOOptions) (IO, error)
	// CloseIO lets go what the keeper has of a process's stdio that no worker has taken over.
	CloseIO(keeper runtime.Descriptors, prefix string) error

	ChildStartTime(pid, parent int) (uint64, error)
	SignalProcess(pid int, start uint64, signal unix.Signal) error

	CgroupOf(pid int, start uint64) (Cgroup, error)
	ParseCgroup(text string) (Cgroup, error)
	ResumeOOM(keeper runtime.Descriptors, prefix string) (OOMWatch, error)

	HasCRIU() bool
	IsImage(path string, since time.Time) bool
}

// Runtime calls the OCI runtime for one container: see runtime.Runc. An IO that it is
// given is one that its Machine has opened.
type Runtime interface {
	Create(ctx context.Context, intent string, stdio IO, launched func() error) (pid int, err error)
	Start(ctx context.Context, intent string) error
	Exec(ctx context.Context, intent string, process []byte, stdio IO, launched func() error) (pid int, err error)
	Kill(ctx context.Context, intent string, signal int) error
	KillAll(ctx context.Context, intent string, signal int) error
	Pause(ctx context.Context, intent string) error
	Resume(ctx context.Context, intent string) error
	Update(ctx context.Context, intent string, resources *specs.LinuxResources) error
	Checkpoint(ctx context.Context, intent string, o runtime.CheckpointOptions) error
	Restore(ctx context.Context, intent string, image runtime.Image, stdio IO, launched func() error) (pid int, err error)
	Delete(ctx context.Context, intent string, force bool) error

	Limit(intent string) time.Duration
	Clean(intent string)
	CleanAll()

	// What is left in the world of an intent.
	WaitOrphans(ctx context.Context, intent string) error
	Ran(intent string) bool
	PidFile(intent string) (int, bool)
	IntentError(intent string) (string, bool)
	LoggedError(intent, op string) error
	CheckpointError(intent string, o runtime.CheckpointOptions) error
	RestoreError(intent string, image runtime.Image) error
	FindProcess(keeper runtime.Descriptors, prefix string) (pid int, ok bool)
	State(ctx context.Context) (runtime.Status, error)
	Unstarted() bool
}

// IO is one worker's view of the stdio of one process: see runtime.IO.
type IO interface {
	Started() error
	Resize(width, height uint16) error
	CloseStdin() error
	Exited()
	Drained(ctx context.Context) error
	Close() error
	Rest() (watch []string, ok bool)
}

// Cgroup is that of a container: see runtime.Cgroup.
type Cgroup interface {
	String() string
	IsZero() bool
	EnableControllers() error
	Thaw() error
	Kill(ctx context.Context, strangers ...int) error
	Processes() ([]int, error)
	Stats() (proto.Message, error)
	// WatchOOM starts watching it, as runtime.WatchOOM.
	WatchOOM(keeper runtime.Descriptors, prefix string) (OOMWatch, error)
}

// OOMWatch knows when the kernel kills processes of a cgroup for want of memory: see
// runtime.OOMWatch. None of its methods blocks.
type OOMWatch interface {
	Kills() (uint64, error)
	Notified() bool
	OnlyOOMs() bool
	Drain() bool
	Wake() (name string, events uint32)
	// Heed calls fired, which must not block, from another goroutine, whenever there is
	// news, and at once if there is some already. What it returns ends that; it is called
	// before Close.
	Heed(fired func()) (remove func(), err error)
	Close()
}

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
