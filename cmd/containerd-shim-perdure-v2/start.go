package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/internal/crash"
	"perdure/recovery/keeper/rendezvous"
)

// lockWait bounds the wait for another start, or a leaving keeper, of the same
// address; both hold the lock for moments.
const lockWait = 10 * time.Second

// start leaves a keeper listening on the group's socket, its own or one that is
// there, and answers with its address.
func start(f flags) error {
	stdin, err := readStdin(os.Stdin)
	if err != nil {
		return fmt.Errorf("container %s: %w", f.id, err)
	}
	caller := sniff(stdin, f.id, f.namespace)
	group, err := groupOf(f.id)
	if err != nil {
		return err
	}
	path, err := rendezvous.Path(socketDir(caller), f.containerd(caller), f.namespace, group)
	if err != nil {
		return fmt.Errorf("container %s: %w", f.id, err)
	}
	if err := makeSocketDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("container %s: %w", f.id, err)
	}
	lock, err := rendezvous.LockStart(path, lockWait)
	if err != nil {
		return fmt.Errorf("container %s: waiting for another start of %s: %w", f.id, path, err)
	}
	defer lock.Close()
	crash.Scope(group)
	crash.Here("keeper-start", "", crash.AfterLock)

	there, err := serving(path)
	if err != nil {
		return fmt.Errorf("container %s: %w", f.id, err)
	}
	undo := func() {}
	if !there {
		if undo, err = launch(f, caller, group, path); err != nil {
			return fmt.Errorf("container %s: %w", f.id, err)
		}
	}
	if err := writeAddress(rendezvous.Address(path)); err != nil {
		undo()
		return fmt.Errorf("container %s: %w", f.id, err)
	}
	crash.Here("keeper-start", "", crash.AfterAddress)
	if _, err := os.Stdout.Write(caller.answer(rendezvous.Address(path))); err != nil {
		undo()
		os.Remove("address")
		return fmt.Errorf("container %s: answering the caller: %w", f.id, err)
	}
	crash.Here("keeper-start", "", crash.AfterAnswer)
	return nil
}

// containerd is the address that tells daemons apart.
func (f flags) containerd(b bootstrap) string {
	if b.grpc != "" {
		return b.grpc
	}
	return f.address
}

// socketDir is the caller's wish, PERDURE_SOCKET_DIR, or containerd's default.
func socketDir(b bootstrap) string {
	for _, dir := range []string{b.socketDir, os.Getenv("PERDURE_SOCKET_DIR")} {
		if dir != "" {
			return dir
		}
	}
	return rendezvous.DefaultDir
}

// makeSocketDir creates the directory for this user alone. One that is there is
// used only where nobody else can put sockets into it.
func makeSocketDir(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("socket directory %q is no absolute path", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("socket directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("socket directory %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("socket directory %s belongs to user %d with mode %o: it must be writable by user %d alone", dir, st.Uid, st.Mode&0o7777, os.Geteuid())
	}
	return nil
}

// serving reports whether somebody listens on the socket: a keeper, or the shim
// of containerd itself, which holds no lock. It is an error where a keeper lives
// that cannot be reached: its containers must not get a second one.
func serving(path string) (bool, error) {
	there, err := rendezvous.Connectable(path)
	if err != nil || there {
		return there, err
	}
	dead, err := rendezvous.Dead(path)
	if err == nil && !dead {
		err = fmt.Errorf("the keeper that has locked %s.keeper does not listen on %s: end the process (fuser names it), then its containers can be deleted", path, path)
	}
	return false, err
}

// launch binds the socket and starts the keeper behind it. What stands at path
// is dead. undo takes everything back.
func launch(f flags, caller bootstrap, group, path string) (undo func(), err error) {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("removing what a dead keeper left: %w", err)
	}
	cleanUp := func() { _ = rendezvous.Remove(path) }
	if err := prepare(caller); err != nil {
		cleanUp()
		return nil, err
	}
	listener, err := listen(path)
	if err != nil {
		cleanUp()
		return nil, err
	}
	defer unix.Close(listener)
	crash.Here("keeper-start", "", crash.AfterBind)
	life, err := rendezvous.LockKeeper(path, time.Second)
	if err != nil {
		cleanUp()
		return nil, err
	}
	defer life.Close()
	pid, err := spawn(f, caller, group, listener, int(life.Fd()))
	if err != nil {
		cleanUp()
		return nil, err
	}
	crash.Here("keeper-start", "", crash.AfterFork)
	return func() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
		cleanUp()
	}, nil
}

// prepare makes this process what the keeper is to be born as: in the cgroup and
// with the core scheduling cookie that the caller asks for, and likelier a victim
// than the caller when memory runs out.
func prepare(caller bootstrap) error {
	cgroup, err := shimCgroup(caller.options)
	if err != nil {
		return err
	}
	if cgroup != "" {
		if err := joinCgroup(cgroup); err != nil {
			return err
		}
	}
	adjustOOMScore()
	return shareCore()
}

func listen(path string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	mask := unix.Umask(0o177) // 0600 from its first moment on
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	unix.Umask(mask)
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("binding %s: %w", path, err)
	}
	return fd, nil
}

// spawn starts the keeper: this program, by path, so that a newer one that was
// renamed into place is used, in a session of its own, with the listening socket
// as fd 3 and its life's lock as fd 4. Nothing of start's stdout and stderr
// reaches it: containerd reads both to their end.
func spawn(f flags, caller bootstrap, group string, listener, life int) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding this program: %w", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("/dev/null: %w", err)
	}
	defer unix.Close(null)
	log := null
	if fifo, err := unix.Open("log", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); err == nil {
		defer unix.Close(fifo)
		log = fifo
	}
	// Whatever start was given besides its three descriptors is not the keeper's.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	args := []string{self, "-namespace", f.namespace, "-id", group, "-address", f.containerd(caller), "keeper"}
	pid, err := syscall.ForkExec(self, args, &syscall.ProcAttr{
		Dir:   "/",
		Env:   keeperEnv(f, caller),
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(log), uintptr(listener), uintptr(life)},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("starting the keeper %s: %w", self, err)
	}
	return pid, nil
}

// keeperEnv is the environment of keeper and workers; workerEnv gives workers
// the GOMAXPROCS that start had.
func keeperEnv(f flags, caller bootstrap) []string {
	set := map[string]string{"NAMESPACE": f.namespace, "GOMAXPROCS": "1", savedProcs: os.Getenv("GOMAXPROCS")}
	if grpc := f.containerd(caller); grpc != "" {
		set["GRPC_ADDRESS"] = grpc
	}
	if caller.ttrpc != "" {
		set["TTRPC_ADDRESS"] = caller.ttrpc
	}
	if f.debug || caller.debug {
		set["PERDURE_DEBUG"] = "1"
	}
	var env []string
	for _, entry := range os.Environ() {
		key, _, _ := strings.Cut(entry, "=")
		if _, ok := set[key]; !ok {
			env = append(env, entry)
		}
	}
	for _, key := range []string{"NAMESPACE", "GRPC_ADDRESS", "TTRPC_ADDRESS", "PERDURE_DEBUG", "GOMAXPROCS", savedProcs} {
		if value, ok := set[key]; ok {
			env = append(env, key+"="+value)
		}
	}
	return env
}

// adjustOOMScore makes every process of the shim one notch likelier a victim
// than containerd, whose score start has inherited or not: the caller's counts.
// Where this is not permitted (rootless), things stay as they are.
func adjustOOMScore() {
	const highest = 1000
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", os.Getppid()))
	if err != nil {
		return
	}
	var score int
	if _, err := fmt.Sscan(string(b), &score); err != nil {
		return
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", fmt.Appendf(nil, "%d", min(score+1, highest)), 0)
}

// shareCore gives this process, and so the keeper and all below it, a core
// scheduling cookie of its own, where containerd asks for it by SCHED_CORE. The
// cookie is for this process's threads, not for its process group: that may be the
// caller's, where start is run by hand.
func shareCore() error {
	if os.Getenv("SCHED_CORE") == "" {
		return nil
	}
	err := unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_CREATE, 0, unix.PR_SCHED_CORE_SCOPE_THREAD_GROUP, 0)
	if err != nil {
		return fmt.Errorf("SCHED_CORE asks for core scheduling, which this kernel (CONFIG_SCHED_CORE) or machine (SMT) does not have: %w", err)
	}
	return nil
}

// writeAddress leaves the address in the bundle, where 1.6, 1.7 and CRI-O look
// for it after a restart.
func writeAddress(address string) error {
	temporary := fmt.Sprintf(".address.%d", os.Getpid())
	err := os.WriteFile(temporary, []byte(address), 0o600)
	if err == nil {
		err = os.Rename(temporary, "address")
	}
	if err != nil {
		os.Remove(temporary)
		return fmt.Errorf("writing the bundle's address file: %w", err)
	}
	return nil
}
