package runtime

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// FindProcess looks for the process of an exec whose runtime was killed after it had
// started the process and before it wrote the pid file. It is the child of the keeper,
// in another mount namespace than ours, that has the other end of one of the streams
// the keeper holds for it as its stdin, stdout or stderr. Of several the oldest is
// taken: in a shared pid namespace, what the process left behind comes to the keeper
// too. ok is false where there is none, as for a process without any stream of its own.
// Recovery calls it after WaitOrphans: a runtime that is alive has the same streams.
func (r *Runc) FindProcess(d Descriptors, prefix string) (pid int, ok bool) {
	ends := otherEnds(d, prefix)
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, false
	}
	var oldest uint64
	for _, child := range children(r.KeeperPID) {
		if namespace := mountNamespace(child); namespace == own || namespace == "" || !uses(child, ends) {
			continue
		}
		start, err := StartTime(child)
		if err == nil && (!ok || start < oldest) {
			pid, oldest, ok = child, start, true
		}
	}
	return pid, ok
}

// inode identifies an open pipe or terminal, whatever mount namespace it is seen from.
type inode struct{ device, number uint64 }

// otherEnds are those of the stored pipes and terminal. Both ends of a pipe have one
// inode.
func otherEnds(d Descriptors, prefix string) map[inode]bool {
	io := &IO{d: d, prefix: prefix}
	ends := map[inode]bool{}
	for _, name := range names {
		if f, err := io.fetch(name); f != nil && err == nil {
			ends[inodeOf(f)] = true
			closeAll(f)
		}
	}
	if master, err := io.takeConsole(0); master != nil && err == nil {
		if slave, err := peer(master); err == nil {
			ends[inodeOf(slave)] = true
			closeAll(slave)
		}
		closeAll(master)
	}
	delete(ends, inode{})
	return ends
}

// peer opens the slave of a terminal: its number alone would do for any container's
// terminal, as each has a devpts of its own (TIOCGPTPEER, Linux 4.13).
func peer(master *os.File) (slave *os.File, err error) {
	err = control(master, func(fd int) error {
		const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_NONBLOCK | unix.O_CLOEXEC
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, flags)
		if errno != 0 {
			return errno
		}
		slave = os.NewFile(n, "terminal")
		return nil
	})
	return slave, err
}

func inodeOf(f *os.File) inode {
	info, err := f.Stat()
	if err != nil {
		return inode{}
	}
	return inodeIn(info)
}

func inodeIn(info os.FileInfo) inode {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return inode{}
	}
	return inode{stat.Dev, stat.Ino}
}

// uses reports whether a process has one of the ends as its stdin, stdout or stderr.
func uses(pid int, ends map[inode]bool) bool {
	for fd := range names {
		info, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
		if err == nil && ends[inodeIn(info)] {
			return true
		}
	}
	return false
}
