package main

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// Callers of start, by what they write on stdin, and what they are answered:
//
//	nothing                      up to 1.7, CRI-O    the bare address
//	an Any of runtime options    1.6 to 2.2          the bare address
//	BootstrapParams              from 2.3            a BootstrapResult
//
// The two messages cannot be told apart by their bytes: an Any's type URL lands
// in instance_id. So BootstrapParams is believed only where its id and its
// namespace are those of the command line.
type bootstrap struct {
	params    bool // the caller speaks BootstrapParams
	debug     bool
	ttrpc     string // containerd's addresses; "": not said
	grpc      string
	socketDir string
	options   []message
}

const (
	maxStdin = 4 << 20
	// A caller writes at once and closes. Somebody else's pipe that stays open
	// must not keep start for ever.
	stdinWait = 2 * time.Second
	// LOG_LEVEL_DEBUG of runtime/bootstrap/v1; lower is more verbose.
	levelDebug = -4
)

// sniff reads BootstrapParams (containerd/api runtime/bootstrap/v1) by hand:
// instance_id 1, namespace 2, log_level 3, ttrpc address 5, grpc address 6,
// extensions 8 (an Any, 1), socket_dir 9. Anything else is an Any of options, or
// nothing.
func sniff(stdin []byte, id, namespace string) bootstrap {
	b := bootstrap{params: true}
	var theirID, theirNamespace string
	err := protocol.Fields(stdin, func(number int, text []byte, value uint64) {
		switch number {
		case 1:
			theirID = string(text)
		case 2:
			theirNamespace = string(text)
		case 3:
			b.debug = int32(value) <= levelDebug
		case 5:
			b.ttrpc = string(text)
		case 6:
			b.grpc = string(text)
		case 8:
			_ = protocol.Fields(text, func(number int, text []byte, _ uint64) {
				if number == 1 {
					b.options = append(b.options, readAny(text))
				}
			})
		case 9:
			b.socketDir = string(text)
		}
	})
	if err != nil || theirID != id || theirNamespace != namespace {
		return bootstrap{options: []message{readAny(stdin)}}
	}
	return b
}

// answer is what goes to stdout: BootstrapResult (version 1, address 2, protocol
// 3) or the bare address. Version 2 of the task API in both: then every member
// of a pod gets a start, a delete and a Shutdown of its own in every release.
func (b bootstrap) answer(address string) []byte {
	if !b.params {
		return []byte(address)
	}
	result := protocol.AppendNumber(nil, 1, 2)
	result = protocol.AppendText(result, 2, address)
	return protocol.AppendText(result, 3, "ttrpc")
}

// readStdin returns what the caller wrote. A terminal has nothing to say, and an
// input that is not closed in time has said all it will.
func readStdin(f *os.File) ([]byte, error) {
	fd := int(f.Fd())
	if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err == nil {
		return nil, nil
	}
	var all []byte
	chunk := make([]byte, 32<<10)
	for deadline := time.Now().Add(stdinWait); ; {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, max(0, int(time.Until(deadline).Milliseconds())))
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 || ready[0].Revents&unix.POLLNVAL != 0 {
			return all, nil
		}
		n, err = unix.Read(fd, chunk)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n == 0 {
			return all, nil
		}
		if all = append(all, chunk[:n]...); len(all) > maxStdin {
			return nil, fmt.Errorf("more than %d bytes on stdin", maxStdin)
		}
	}
}
