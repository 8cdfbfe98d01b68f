package runtime

import (
	"os"
	"time"
)

// Reads by splice raise no IN_ACCESS before Linux 6.5, and inotify descriptors can run
// out. Then, the fifo is looked at after these delays.
const (
	firstLook = time.Second
	lastLook  = 32 * time.Second
)

// awaitDrained waits until a fifo is empty. It returns false when stop was closed.
func awaitDrained(fifo *os.File, stop <-chan struct{}) bool {
	if n, err := unread(fifo); err != nil || n == 0 {
		return err == nil
	}
	read, end, err := accesses.add(fifo)
	if err == nil {
		defer end()
	}
	look := time.NewTimer(firstLook)
	defer look.Stop()
	for delay := firstLook; ; {
		// Looked at after the watch was set, or a read in between would be missed.
		if n, err := unread(fifo); err != nil || n == 0 {
			return err == nil
		}
		select {
		case <-stop:
			return false
		case <-read:
		case <-look.C:
			delay = min(2*delay, lastLook)
			look.Reset(delay)
		}
	}
}
