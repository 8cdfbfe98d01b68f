package runtime

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// OOMWatch knows when the kernel kills processes of a cgroup for want of memory. What it
// needs is with the keeper, so nothing is missed while no worker lives:
//
//	counter  open memory.events (version 2) or memory.oom_control (version 1); both have a
//	         line oom_kill, which counts the killed (Linux 4.13), and never goes back
//	notify   version 1 only: the eventfd that is signalled on an OOM in the cgroup or above it,
//	         just before the kernel chooses whom to kill (Linux, cgroup-v1/memory.rst)
//
// Version 2 counts first and makes memory.events ready (POLLPRI) then, until it is read
// through the same open file.
type OOMWatch struct {
	prefix  string
	counter *os.File
	notify  *os.File // nil with version 2
}

// WatchOOM starts watching a cgroup, and goes on where a worker was killed over
// starting it. errdefs.ErrNotFound where the cgroup has no memory controller, is another
// user's (rootless), or is gone.
func WatchOOM(d Descriptors, prefix string, g Cgroup) (*OOMWatch, error) {
	w := &OOMWatch{prefix: prefix}
	var err error
	if dir := g.dirs["memory"]; dir != "" {
		err = w.watch1(d, dir)
	} else if dir := g.dirs[unified]; dir != "" {
		if w.counter, err = os.Open(filepath.Join(dir, "memory.events")); err == nil {
			_, err = w.Kills() // a file that was never read is ready from the start
		}
	} else {
		err = os.ErrNotExist
	}
	if err == nil {
		err = d.Store(prefix+"/counter", w.counter) // last: it says that the rest is there
	}
	if err == nil {
		return w, nil
	}
	w.Close()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("no memory controller (%w): %w", err, errdefs.ErrNotFound)
	}
	return nil, fmt.Errorf("watch for OOM: %w", err)
}

// watch1 makes the eventfd. One that is registered twice, by a worker that died before it
// could say so, is signalled twice, which is no more than once to whoever looks then.
func (w *OOMWatch) watch1(d Descriptors, dir string) (err error) {
	if w.counter, err = os.Open(filepath.Join(dir, "memory.oom_control")); err != nil {
		return err
	}
	if w.notify, err = d.Fetch(w.prefix + "/notify"); errors.Is(err, os.ErrNotExist) {
		var fd int
		if fd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return os.NewSyscallError("eventfd", err)
		}
		w.notify = os.NewFile(uintptr(fd), "oom")
		err = d.Store(w.prefix+"/notify", w.notify)
	}
	if err != nil {
		return err
	}
	return control(w.notify, func(event int) error {
		return control(w.counter, func(of int) error {
			return os.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Appendf(nil, "%d %d", event, of), 0)
		})
	})
}

// ResumeOOM goes on with what an earlier worker watched. os.ErrNotExist where none did.
func ResumeOOM(d Descriptors, prefix string) (*OOMWatch, error) {
	w := &OOMWatch{prefix: prefix}
	var err error
	if w.counter, err = d.Fetch(prefix + "/counter"); err != nil {
		return nil, err
	}
	if w.notify, err = d.Fetch(prefix + "/notify"); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Close lets this worker's descriptors go; the keeper's stay.
func (w *OOMWatch) Close() { closeAll(w.counter, w.notify) }

// Kills is how many processes of the cgroup the kernel has killed for want of memory, and
// of the cgroups below it with version 2. It re-arms the readiness of version 2. An
// error means that the cgroup is gone.
func (w *OOMWatch) Kills() (uint64, error) {
	var buffer [512]byte
	var n int
	err := control(w.counter, func(fd int) (err error) {
		n, err = unix.Pread(fd, buffer[:], 0)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read the OOM counter: %w", err)
	}
	return oomKills(string(buffer[:n]))
}

func oomKills(text string) (uint64, error) {
	for line := range strings.Lines(text) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(count), 10, 64)
		}
	}
	return 0, fmt.Errorf("no oom_kill in %q", text)
}

// Notified reports whether there was an early notification since Drain: one that comes
// before the kill is counted, or without one. Only version 1 has them, where the victim
// may be in a cgroup below or beside.
func (w *OOMWatch) Notified() bool {
	if w.notify == nil {
		return false
	}
	return pending(w.notify, unix.POLLIN)
}

// pending reports whether a descriptor has one of the poll events now.
func pending(f *os.File, events int16) (yes bool) {
	_ = control(f, func(fd int) error { yes = ready(fd, events); return nil })
	return yes
}

// OnlyOOMs reports whether it is notified of nothing else: version 2 notifies of limits
// that are merely reached, too.
func (w *OOMWatch) OnlyOOMs() bool { return w.notify != nil }

// Drain forgets the early notifications, and reports whether there were any.
func (w *OOMWatch) Drain() bool {
	if w.notify == nil {
		return false
	}
	var count [8]byte
	return control(w.notify, func(fd int) error {
		_, err := unix.Read(fd, count[:]) // non-blocking
		return err
	}) == nil
}

// Wake is the name under which the keeper has what becomes ready, and for which poll
// events to wake a worker.
func (w *OOMWatch) Wake() (name string, events uint32) {
	if w.notify != nil {
		return w.prefix + "/notify", unix.EPOLLIN
	}
	return w.prefix + "/counter", unix.EPOLLPRI
}

// ready is Wake for this worker.
func (w *OOMWatch) ready() (*os.File, uint32) {
	if w.notify != nil {
		return w.notify, unix.EPOLLIN
	}
	return w.counter, unix.EPOLLPRI
}
