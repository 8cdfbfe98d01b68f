package task

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"perdure/runtime"
)

// NewMachine is the machine that this process runs on: package runtime, and a poller
// for OOMs that the watches of all containers share.
func NewMachine() Machine {
	return machine{ooms: sync.OnceValues(runtime.NewOOMPoller)}
}

type machine struct {
	ooms func() (*runtime.OOMPoller, error) // made when the first container comes
}

func (machine) Runtime(c runtime.Config) Runtime { return runc{runtime.New(c)} }

func (machine) MountRootfs(bundle string, mounts []runtime.Mount) error {
	return runtime.MountRootfs(bundle, mounts)
}

func (machine) UnmountRootfs(bundle string) error { return runtime.UnmountRootfs(bundle) }

func (machine) OpenIO(d runtime.Descriptors, prefix string, s runtime.Stdio, o runtime.IOOptions) (IO, error) {
	return opened(runtime.OpenIO(d, prefix, s, o))
}

func (machine) ResumeIO(d runtime.Descriptors, prefix string, s runtime.Stdio, o runtime.IOOptions) (IO, error) {
	return opened(runtime.ResumeIO(d, prefix, s, o))
}

// opened keeps a nil pointer from becoming an IO that is not nil.
func opened(io *runtime.IO, err error) (IO, error) {
	if err != nil {
		return nil, err
	}
	return io, nil
}

func (machine) CloseIO(d runtime.Descriptors, prefix string) error { return runtime.CloseIO(d, prefix) }

func (machine) ChildStartTime(pid, parent int) (uint64, error) {
	return runtime.ChildStartTime(pid, parent)
}

func (machine) SignalProcess(pid int, start uint64, signal unix.Signal) error {
	return runtime.SignalProcess(pid, start, signal)
}

func (m machine) CgroupOf(pid int, start uint64) (Cgroup, error) {
	g, err := runtime.CgroupOf(pid, start)
	return cgroup{g, m}, err
}

func (m machine) ParseCgroup(text string) (Cgroup, error) {
	g, err := runtime.ParseCgroup(text)
	return cgroup{g, m}, err
}

func (m machine) ResumeOOM(d runtime.Descriptors, prefix string) (OOMWatch, error) {
	return m.watching(runtime.ResumeOOM(d, prefix))
}

func (m machine) watching(w *runtime.OOMWatch, err error) (OOMWatch, error) {
	if err != nil {
		return nil, err
	}
	return oomWatch{w, m}, nil
}

func (machine) HasCRIU() bool { return runtime.HasCRIU() }

func (machine) IsImage(path string, since time.Time) bool { return runtime.IsImage(path, since) }

// runc is runtime.Runc for the stdio of this machine.
type runc struct{ *runtime.Runc }

func (r runc) Create(ctx context.Context, intent string, stdio IO, launched func() error) (int, error) {
	return r.Runc.Create(ctx, intent, stdio.(*runtime.IO), launched)
}

func (r runc) Exec(ctx context.Context, intent string, process []byte, stdio IO, launched func() error) (int, error) {
	return r.Runc.Exec(ctx, intent, process, stdio.(*runtime.IO), launched)
}

func (r runc) Restore(ctx context.Context, intent string, image runtime.Image, stdio IO, launched func() error) (int, error) {
	return r.Runc.Restore(ctx, intent, image, stdio.(*runtime.IO), launched)
}

type cgroup struct {
	runtime.Cgroup
	machine machine
}

func (g cgroup) WatchOOM(d runtime.Descriptors, prefix string) (OOMWatch, error) {
	return g.machine.watching(runtime.WatchOOM(d, prefix, g.Cgroup))
}

type oomWatch struct {
	*runtime.OOMWatch
	machine machine
}

func (w oomWatch) Heed(fired func()) (remove func(), err error) {
	poller, err := w.machine.ooms()
	if err != nil {
		return nil, err
	}
	return poller.Add(w.OOMWatch, fired)
}
