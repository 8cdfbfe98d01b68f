package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// Types of runtime options. Others are for Create to refuse: an extension of
// BootstrapParams can be anything.
const (
	runcOptions    = "containerd.runc.v1.Options"
	genericOptions = "runtimeoptions.v1.Options"
)

// message is an Any.
type message struct{ name, value string }

// readAny reads an Any: type_url 1, value 2. The name is what follows the URL's
// last slash. What is no Any has no name.
func readAny(encoded []byte) (m message) {
	err := protocol.Fields(encoded, func(number int, text []byte, _ uint64) {
		switch number {
		case 1:
			m.name = string(text)
		case 2:
			m.value = string(text)
		}
	})
	if err != nil {
		return message{}
	}
	m.name = m.name[strings.LastIndexByte(m.name, '/')+1:]
	return m
}

// shimCgroup is the one option that start itself has a use for: the cgroup that
// the keeper is to be in, "" for none.
func shimCgroup(options []message) (string, error) {
	for _, o := range options {
		switch o.name {
		case runcOptions:
			return runcShimCgroup(o)
		case genericOptions:
			return genericShimCgroup(o)
		}
	}
	return "", nil
}

// runcShimCgroup reads shim_cgroup, 3.
func runcShimCgroup(o message) (cgroup string, err error) {
	err = protocol.Fields([]byte(o.value), func(number int, text []byte, _ uint64) {
		if number == 3 {
			cgroup = string(text)
		}
	})
	if err != nil {
		return "", fmt.Errorf("options %s: decode: %w", o.name, err)
	}
	return cgroup, nil
}

// genericShimCgroup has the worker's program read the TOML document, if there is
// one (config_path 2, config_body 3): this program is too small for that.
func genericShimCgroup(o message) (string, error) {
	document := false
	err := protocol.Fields([]byte(o.value), func(number int, text []byte, _ uint64) {
		document = document || (number == 2 || number == 3) && len(text) > 0
	})
	if err != nil {
		return "", fmt.Errorf("options %s: decode: %w", o.name, err)
	}
	if !document {
		return "", nil
	}
	return askPerdure("shim-cgroup", protocol.AppendText(protocol.AppendText(nil, 1, o.name), 2, o.value))
}

// askPerdure runs `perdure <command>` with an input and returns what it says. Its streams
// are memory files, so that neither side can make the other wait.
func askPerdure(command string, input []byte) (string, error) {
	path, err := workerProgram()
	if err != nil {
		return "", err
	}
	var streams [3]*os.File
	for i := range streams {
		fd, err := unix.MemfdCreate("perdure-"+command, unix.MFD_CLOEXEC)
		if err != nil {
			return "", fmt.Errorf("memory for %s: %w", command, err)
		}
		streams[i] = os.NewFile(uintptr(fd), command)
		defer streams[i].Close()
	}
	if _, err := streams[0].Write(input); err != nil {
		return "", fmt.Errorf("memory for %s: %w", command, err)
	}
	if _, err := streams[0].Seek(0, 0); err != nil {
		return "", fmt.Errorf("memory for %s: %w", command, err)
	}
	pid, err := syscall.ForkExec(path, []string{path, command}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{streams[0].Fd(), streams[1].Fd(), streams[2].Fd()},
	})
	if err != nil {
		return "", cannotRun(path, command, err)
	}
	status, err := reap(pid, askWait)
	if err != nil {
		return "", fmt.Errorf("waiting for %s %s: %w", path, command, err)
	}
	said, failure := told(streams[1]), told(streams[2])
	if status != 0 {
		return "", fmt.Errorf("%s", cutPrefix(failure, "perdure "+command+": ", fmt.Sprintf("%s %s ended with status %#x", path, command, int(status))))
	}
	return said, nil
}

// askWait is how long perdure may take to answer: the other starts of the group wait.
// Tests have their own.
var askWait = 2 * time.Second

// reap waits for a child, and kills it where it takes longer.
func reap(pid int, limit time.Duration) (status syscall.WaitStatus, err error) {
	late := awaitEnd(pid, limit)
	if late != nil {
		_ = unix.Kill(pid, unix.SIGKILL) // not reaped yet, so the pid is still its own
	}
	for {
		if _, err = syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			break
		}
	}
	if late != nil {
		err = late
	}
	return status, err
}

func awaitEnd(pid int, limit time.Duration) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return os.NewSyscallError("pidfd_open", err)
	}
	defer unix.Close(pidfd)
	for deadline := time.Now().Add(limit); ; {
		left := max(0, int(time.Until(deadline).Milliseconds()))
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, left)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return fmt.Errorf("it did not end within %s and was killed", limit)
		default:
			return nil
		}
	}
}

const maxTold = 64 << 10

// told is what a process has written.
func told(f *os.File) string {
	text := make([]byte, maxTold)
	n, _ := f.ReadAt(text, 0)
	return strings.TrimSpace(string(text[:n]))
}

// cutPrefix is text without a prefix, or instead, where there is no text.
func cutPrefix(text, prefix, instead string) string {
	if text == "" {
		return instead
	}
	return strings.TrimPrefix(text, prefix)
}
