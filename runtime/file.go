package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

const (
	// stageSize is what a stage holds at most, in bytes: a pipe's usual capacity.
	stageSize = spliceSize
	// retryDelay is how long after a failed write to a file the next is tried. A full
	// disk is a slow reader: the process waits, nothing is lost.
	retryDelay = time.Second
)

// openLog opens a file:// target as the stock shim does: parent directories are made,
// the file is appended to.
func openLog(path string) (f *os.File, regular bool, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, false, fmt.Errorf("file %s: make its directory: %w", path, err)
	}
	// O_NONBLOCK: nothing that turns out to be a fifo or a device is waited for.
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o644)
	if err != nil {
		switch {
		case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTDIR):
			err = fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		case errors.Is(err, unix.ENXIO):
			err = fmt.Errorf("it is a fifo or socket, name a fifo without file://: %w", errdefs.ErrInvalidArgument)
		}
		return nil, false, fmt.Errorf("file %s: %w", path, err)
	}
	f = os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		closeAll(f)
		return nil, false, fmt.Errorf("file %s: %w", path, err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		regular = true
	case unix.S_IFCHR: // spliced to, which a description that appends refuses
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK)
	case unix.S_IFIFO:
		err = fmt.Errorf("it is a fifo, name it without file://: %w", errdefs.ErrInvalidArgument)
	default:
		err = fmt.Errorf("it is no file: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		closeAll(f)
		return nil, false, fmt.Errorf("file %s: %w", path, err)
	}
	return f, regular, nil
}

// newStage makes the pipe in which a batch of output waits until it is written, as one
// descriptor for both directions.
func newStage() (*os.File, error) {
	read, write, err := pipe("stage", true, 0, 0)
	if err != nil {
		return nil, err
	}
	defer closeAll(read, write)
	var stage *os.File
	err = control(read, func(fd int) error {
		n, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		stage = os.NewFile(uintptr(n), "stage")
		return err
	})
	return stage, err
}

// newMark makes a descriptor whose offset can hold any number; see appender.
func newMark() (*os.File, error) {
	fd, err := unix.MemfdCreate("perdure-mark", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "mark"), nil
}

// appender appends a process's output to a file, each byte once, whatever the worker's
// last instruction was.
//
// The kernel does not splice to a file that is appended to, and a splice to an offset
// would write into what others append, or behind the hole that a rotation by truncation
// leaves. So a batch is moved into a stage (a pipe, with the keeper), its bytes are looked at
// with tee, written, and then taken out of the stage. Whether that last write has
// happened is told by the file's offset, which the keeper's descriptor shares and which
// the kernel sets in the write itself: it stands at unwritten before, and at the end of what
// was written after. A killed write may be a short one. How much of the batch
// it wrote is the distance from the size that the file had before, which is, with
// the batch's length, in the offset of another descriptor (mark); where others appended
// or truncated meanwhile the file's contents decide.
type appender struct {
	file, stage, mark *os.File
	unwritten         int64       // offset of file that stands for: the batch is not written
	copies            [2]*os.File // pipe that the batch is copied through
}

// markShift is the room for a batch's length in a mark's offset.
const markShift = 17

var batches = sync.Pool{New: func() any { return new([stageSize]byte) }}

// newAppender takes file, stage and mark as the keeper has them.
func newAppender(file, stage, mark *os.File) (*appender, error) {
	a := &appender{file: file, stage: stage, mark: mark}
	var err error
	if a.copies[0], a.copies[1], err = pipe("batch", true, 0, 0); err != nil {
		return nil, err
	}
	if err := control(a.copies[1], func(fd int) error { return unix.SetNonblock(fd, true) }); err != nil {
		a.close()
		return nil, err
	}
	if a.unwritten, err = lastOffset(file); err != nil {
		a.close()
		return nil, fmt.Errorf("file %s: %w", file.Name(), err)
	}
	return a, nil
}

func (a *appender) close() { closeAll(a.copies[:]...) }

// lastOffset is the greatest offset that a file can have, which depends on its file
// system, and at most 2^62. It is looked for on a description of its own, which
// appends because a file with the attribute a (chattr) has no other.
func lastOffset(f *os.File) (last int64, err error) {
	err = control(f, func(fd int) error {
		probe, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer unix.Close(probe)
		for bit := int64(1) << 62; bit > 0; bit >>= 1 {
			if last+bit > 1<<62 {
				continue
			}
			if _, err := unix.Seek(probe, last+bit, unix.SEEK_SET); err == nil {
				last += bit
			}
		}
		return nil
	})
	if err == nil && last < math.MaxInt32 {
		err = fmt.Errorf("its file system ends files at %d bytes", last)
	}
	return last, err
}

// settle finishes what an earlier worker was killed in: a batch that is written, or a
// part of it, leaves the stage.
func (a *appender) settle() error {
	end, err := seek(a.file, 0, unix.SEEK_CUR)
	if err != nil || end == a.unwritten {
		return err
	}
	batch := batches.Get().(*[stageSize]byte)
	defer batches.Put(batch)
	rest, err := a.peek(batch[:])
	if err != nil {
		return err
	}
	written := 0
	if len(rest) > 0 {
		if written, err = a.written(end, rest); err != nil {
			return err
		}
	}
	return a.taken(written)
}

// written is how much of what is left of a batch is in the file, in which the last
// write ended at end.
func (a *appender) written(end int64, rest []byte) (int, error) {
	mark, err := seek(a.mark, 0, unix.SEEK_CUR)
	if err != nil {
		return 0, err
	}
	before, length := mark>>markShift, int(mark&(1<<markShift-1))
	taken := int64(length - len(rest)) // killed while it was taken out
	guess := end - before - taken
	possible := guess >= 0 && guess <= int64(len(rest))
	tail, known := a.tail(end, len(rest))
	switch {
	case possible && (!known || bytes.HasSuffix(tail, rest[:guess])):
		return int(guess), nil
	case !known:
		return len(rest), nil
	}
	for n := len(rest); n > 0; n-- {
		if bytes.HasSuffix(tail, rest[:n]) {
			return n, nil
		}
	}
	if taken > 0 { // all that was written has been taken out
		return 0, nil
	}
	return len(rest), nil
}

// tail reads what is in the file before an offset, at most size bytes of it. It is not
// known where the file cannot be read or has become shorter.
func (a *appender) tail(end int64, size int) (tail []byte, known bool) {
	err := control(a.file, func(fd int) error {
		f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			return err
		}
		defer f.Close()
		tail = make([]byte, min(int64(size), end))
		_, err = f.ReadAt(tail, end-int64(len(tail)))
		return err
	})
	return tail, err == nil
}

// flush writes all that is in the stage.
func (a *appender) flush() error {
	batch := batches.Get().(*[stageSize]byte)
	defer batches.Put(batch)
	for {
		data, err := a.peek(batch[:])
		if err != nil || len(data) == 0 {
			return err
		}
		if err := a.note(len(data)); err != nil {
			return err
		}
		n := 0
		err = control(a.file, func(fd int) (err error) {
			n, err = unix.Write(fd, data)
			return err
		})
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if err := a.taken(n); err != nil {
			return err
		}
	}
}

// deliver is flush that waits for a file that cannot be written at the moment, until
// stop.
func (a *appender) deliver(stop <-chan struct{}) error {
	for told := false; ; told = true {
		err := a.flush()
		if err == nil {
			return nil
		}
		select {
		case <-stop:
			return os.ErrClosed
		default:
		}
		if !told {
			log.L.WithError(err).Errorf("output waits for %s, which cannot be written", a.file.Name())
		}
		select {
		case <-stop:
			return os.ErrClosed
		case <-time.After(retryDelay):
		}
	}
}

// note puts down what is about to be written, and where.
func (a *appender) note(length int) error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < 1<<(63-markShift) {
		_, err = seek(a.mark, info.Size()<<markShift|int64(length), unix.SEEK_SET)
	}
	return err
}

// taken removes n written bytes from the stage, and then says that the rest is not
// written.
func (a *appender) taken(n int) error {
	batch := batches.Get().(*[stageSize]byte)
	defer batches.Put(batch)
	for n > 0 {
		var got int
		err := control(a.stage, func(fd int) (err error) {
			got, err = unix.Read(fd, batch[:n])
			return err
		})
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stage: %w", err)
		}
		n -= got
	}
	_, err := seek(a.file, a.unwritten, unix.SEEK_SET)
	return err
}

// peek reads what is in the stage and leaves it there.
func (a *appender) peek(buffer []byte) ([]byte, error) {
	n, err := unread(a.stage)
	if n == 0 || err != nil {
		return nil, err
	}
	var copied int64
	err = control(a.stage, func(stage int) error {
		return control(a.copies[1], func(to int) (err error) {
			for {
				if copied, err = unix.Tee(stage, to, n, unix.SPLICE_F_NONBLOCK); !errors.Is(err, unix.EINTR) {
					return err
				}
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("copy of the stage: %w", err)
	}
	for got := 0; got < int(copied); {
		read, err := a.copies[0].Read(buffer[got:copied])
		if err != nil {
			return nil, fmt.Errorf("copy of the stage: %w", err)
		}
		got += read
	}
	if int(copied) != n {
		return nil, fmt.Errorf("copy of the stage: %d bytes of %d", copied, n)
	}
	return buffer[:n], nil
}

func seek(f *os.File, offset int64, whence int) (at int64, err error) {
	err = control(f, func(fd int) error {
		at, err = unix.Seek(fd, offset, whence)
		return err
	})
	return at, err
}
