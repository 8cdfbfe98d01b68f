package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/protocol"
	"perdure/recovery/keeper/rendezvous"
)

// keeper is the whole state. Only the goroutine of run touches it.
type keeper struct {
	Config
	path    string // of the socket
	address string
	null    int // /dev/null, the worker's stdin and stdout

	poll    poller
	scratch [protocol.MaxPacket]byte
	now     time.Time // when this round's events came
	alarm   time.Time // when settle has to look again; zero: no such time

	listener *source   // nil when leaving
	retryAt  time.Time // when to try what met a limit again; zero: nothing did
	born     time.Time
	heard    bool        // a client has said something
	promises []time.Time // when a `start` was told of this keeper whose client has not come yet, oldest first
	conns    []*conn
	lastConn uint64

	lastNumber uint64
	open       []*request // unanswered but Wait, ascending; answered ones linger for a while
	unanswered int        // of open

	worker  *worker // nil: none runs
	restart restart
	hang    hang
	exits   exits
	store   map[string]*stored
	reapFD  int // eventfd: there may be dead children

	shutdownWanted bool
	leaving        time.Time // since when the socket is given up; zero: it is not
}

// Run is the life of a keeper. It returns when the keeper has left (nil) or
// could not begin. It changes the whole process: child subreaper, SIGPIPE
// ignored, every child reaped, garbage collected seldom.
func Run(config Config) error {
	k := &keeper{Config: config, store: map[string]*stored{}}
	if err := k.begin(); err != nil {
		return fmt.Errorf("keeper of %s/%s: %w", k.Namespace, k.Group, err)
	}
	return k.run()
}

func (k *keeper) begin() error {
	crash.Scope(k.Group)
	ownMemory()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("becoming child subreaper: %w", err)
	}
	name, err := unix.Getsockname(k.Listener)
	if err != nil {
		return fmt.Errorf("name of the listening socket: %w", err)
	}
	local, ok := name.(*unix.SockaddrUnix)
	if !ok {
		return errors.New("the listening socket is no unix socket")
	}
	k.path, k.address = local.Name, rendezvous.Address(local.Name)
	if err := unix.SetNonblock(k.Listener, true); err != nil {
		return err
	}
	if k.null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("/dev/null: %w", err)
	}
	if k.poll, err = newPoller(); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	if k.listener, err = k.poll.add(k.Listener, unix.EPOLLIN, k.accept); err != nil {
		return fmt.Errorf("polling the listening socket: %w", err)
	}
	k.now = time.Now()
	k.born = k.now
	k.lastNumber = uint64(k.now.UnixNano())
	return k.watchChildren()
}

// watchChildren turns SIGCHLD into an event of the loop.
func (k *keeper) watchChildren() error {
	fd, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	k.reapFD = fd
	if _, err = k.poll.add(fd, unix.EPOLLIN, func(uint32) {
		_, _ = read(fd, k.scratch[:8])
		k.reap()
	}); err != nil {
		return fmt.Errorf("polling an eventfd: %w", err)
	}
	signal.Ignore(syscall.SIGPIPE)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			ring(fd)
		}
	}()
	return nil
}

func ring(eventfd int) {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(eventfd, one[:])
}

func (k *keeper) run() error {
	for !k.settle() {
		timeout := time.Duration(-1)
		if !k.alarm.IsZero() {
			timeout = max(0, k.alarm.Sub(k.now))
		}
		n, err := k.poll.wait(timeout)
		if err != nil {
			return fmt.Errorf("waiting for events: %w", err)
		}
		k.now = time.Now()
		k.hang.excuse(k.now, k.alarm)
		memory.waste += n * eventWaste
		k.poll.dispatch(n)
	}
	crash.Here("keeper-leave", "", crash.BeforeExit)
	return nil
}

// settle does what the state calls for, and sets the alarm for what it will
// call for later. It reports whether the keeper is through.
func (k *keeper) settle() (over bool) {
	k.alarm = time.Time{}
	k.tendRetry()
	k.tendWorker()
	k.tendHang()
	tendMemory()
	over = k.tendLeave()
	k.flushControl()
	return over
}

// due reports whether t has come, and sees to it that settle runs when it does.
func (k *keeper) due(t time.Time) bool {
	if !t.After(k.now) {
		return true
	}
	if k.alarm.IsZero() || t.Before(k.alarm) {
		k.alarm = t
	}
	return false
}

// log says a sentence to people, in the form of containerd's own lines. It is
// lost where nobody reads.
func (k *keeper) log(level, format string, args ...any) {
	line := fmt.Sprintf("time=%q level=%s msg=%q namespace=%s group=%s keeper=%d\n",
		time.Now().Format(time.RFC3339Nano), level, "perdure keeper: "+fmt.Sprintf(format, args...),
		k.Namespace, k.Group, os.Getpid())
	_, _ = unix.Write(k.Log, []byte(line))
}
