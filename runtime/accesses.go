package runtime

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// accesses tells when a fifo was read from. One inotify descriptor serves the whole
// worker while anything is waited for: a machine has 128 per user.
var accesses = accessWatch{waiting: map[int32]map[chan struct{}]bool{}}

type accessWatch struct {
	mu      sync.Mutex
	inotify *os.File
	waiting map[int32]map[chan struct{}]bool // by inotify's watch descriptor
}

// add returns a channel that gets a value after reads of the fifo (one value may stand
// for many), and what ends it.
func (w *accessWatch) add(fifo *os.File) (<-chan struct{}, func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inotify == nil {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return nil, nil, fmt.Errorf("inotify_init: %w", err)
		}
		w.inotify = os.NewFile(uintptr(fd), "inotify")
		go w.read(w.inotify)
	}
	wd, err := w.watch(fifo)
	if err != nil {
		w.closeIdleLocked()
		return nil, nil, err
	}
	read := make(chan struct{}, 1)
	if w.waiting[wd] == nil {
		w.waiting[wd] = map[chan struct{}]bool{}
	}
	w.waiting[wd][read] = true
	return read, func() { w.remove(wd, read) }, nil
}

// watch goes by the open descriptor: the fifo's name may be gone or another's.
func (w *accessWatch) watch(fifo *os.File) (wd int32, err error) {
	err = control(fifo, func(fd int) error {
		return control(w.inotify, func(inotify int) error {
			n, err := unix.InotifyAddWatch(inotify, fmt.Sprintf("/proc/self/fd/%d", fd), unix.IN_ACCESS)
			wd = int32(n)
			return err
		})
	})
	if err != nil {
		return 0, fmt.Errorf("inotify watch of %s: %w", fifo.Name(), err)
	}
	return wd, nil
}

func (w *accessWatch) remove(wd int32, read chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting[wd], read)
	if len(w.waiting[wd]) > 0 {
		return
	}
	delete(w.waiting, wd)
	_ = control(w.inotify, func(fd int) error {
		_, err := unix.InotifyRmWatch(fd, uint32(wd))
		return err
	})
	w.closeIdleLocked()
}

func (w *accessWatch) closeIdleLocked() {
	if len(w.waiting) == 0 && w.inotify != nil {
		_ = w.inotify.Close() // ends read
		w.inotify = nil
	}
}

// read passes inotify's messages on until the descriptor is closed.
func (w *accessWatch) read(inotify *os.File) {
	buffer := make([]byte, 4096)
	for {
		n, err := inotify.Read(buffer)
		if err != nil {
			return
		}
		for message := buffer[:n]; len(message) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(message))
			name := binary.NativeEndian.Uint32(message[12:])
			message = message[unix.SizeofInotifyEvent+int(name):]
			w.tell(wd)
		}
	}
}

func (w *accessWatch) tell(wd int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for read := range w.waiting[wd] {
		select {
		case read <- struct{}{}:
		default:
		}
	}
}
