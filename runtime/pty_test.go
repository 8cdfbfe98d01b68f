package runtime

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// pty is a terminal in raw mode, delivered to a console socket as a runtime would.
type pty struct {
	t      *testing.T
	dir    string
	ours   *os.File
	number int
}

func newPty(t *testing.T) *pty {
	t.Helper()
	requireRoot(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { closeAll(master) })
	p := &pty{t: t, dir: t.TempDir(), ours: master}
	must(t, control(master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		p.number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	}))
	slave := p.slave()
	must(t, control(slave, func(fd int) error {
		mode, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			return err
		}
		mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
		mode.Cflag = mode.Cflag&^unix.CSIZE | unix.CS8
		mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
		return unix.IoctlSetTermios(fd, unix.TCSETS, mode)
	}))
	closeAll(slave)
	return p
}

func (p *pty) slave() *os.File {
	p.t.Helper()
	f, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", p.number), os.O_RDWR|unix.O_NOCTTY, 0)
	must(p.t, err)
	return f
}

func (p *pty) fifo(name string) string {
	path := filepath.Join(p.dir, name)
	must(p.t, unix.Mkfifo(path, 0o600))
	return path
}

// master gives the test's only descriptor of the master away.
func (p *pty) master(t *testing.T) *os.File {
	t.Helper()
	f, err := duplicate(p.ours)
	must(t, err)
	closeAll(p.ours)
	return f
}

func (p *pty) options() IOOptions { return IOOptions{Bundle: p.dir, Intent: "i"} }

// deliver sends the master to the console socket and keeps nothing of it.
func (p *pty) deliver() {
	p.t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(p.dir, intentDir, "i.sock"), Net: "unix"})
	must(p.t, err)
	must(p.t, control(p.ours, func(fd int) error {
		_, _, err := conn.WriteMsgUnix([]byte("/dev/ptmx"), unix.UnixRights(fd), nil)
		return err
	}))
	must(p.t, conn.Close())
	closeAll(p.ours)
}

func (p *pty) open(d Descriptors, s Stdio) *IO {
	p.t.Helper()
	stdio, err := OpenIO(d, "p", s, p.options())
	must(p.t, err)
	p.t.Cleanup(func() { must(p.t, stdio.Close()) })
	p.deliver()
	must(p.t, stdio.Started())
	return stdio
}
