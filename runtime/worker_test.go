package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A copy of the test binary plays the role named in its environment.
const (
	roleEnv = "PERDURE_TEST_ROLE"
	jobEnv  = "PERDURE_TEST_JOB"
)

var roles = map[string]func() int{
	"copy":   copyRole,
	"create": createRole,
	"write":  writeRole,
	"check":  checkRole,
	"idle":   func() int { select {} },
	"life":   lifeRole,
	"line":   lineRole,
}

// job is what a worker is told.
type job struct {
	Stdio    Stdio
	Options  IOOptions
	Launched bool
	Exited   bool
	Config   Config
}

// MarshalJSON leaves out the channel, which has no JSON.
func (j job) MarshalJSON() ([]byte, error) {
	type plain job
	type options struct {
		IOOptions
		GiveUp *struct{} `json:",omitempty"`
	}
	return json.Marshal(struct {
		plain
		Options options
	}{plain: plain(j), Options: options{IOOptions: j.Options}})
}

// worker is a process that can be killed, with the test as its keeper.
type worker struct {
	*exec.Cmd
	t    *testing.T
	stop stop
}

// stop is where a worker is to be killed: once the keeper has carried out so many of
// its calls, and has not answered the last.
type stop struct {
	calls   int           // 0: nowhere
	lost    bool          // the last is not carried out either
	reached chan struct{} // closed then
	gone    chan struct{} // closed when the worker is killed
}

func startWorker(t *testing.T, keeper *store, role string, j job) *worker {
	t.Helper()
	return startWorkerUpTo(t, 0, keeper, role, j)
}

func startWorkerUpTo(t *testing.T, calls int, keeper *store, role string, j job) *worker {
	t.Helper()
	return startWorkerUntil(t, stop{calls: calls}, keeper, role, j)
}

func startWorkerUntil(t *testing.T, stop stop, keeper *store, role string, j job) *worker {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	ours, theirs := os.NewFile(uintptr(pair[0]), "keeper"), os.NewFile(uintptr(pair[1]), "worker")
	defer theirs.Close()
	stop.reached, stop.gone = make(chan struct{}), make(chan struct{})
	go serveKeeper(keeper, ours, stop)
	text, err := json.Marshal(j)
	must(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"="+role, jobEnv+"="+string(text))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	return &worker{Cmd: cmd, t: t, stop: stop}
}

func (w *worker) kill() {
	w.t.Helper()
	must(w.t, w.Process.Kill())
	_ = w.Wait()
	close(w.stop.gone)
	if status, ok := w.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() {
		w.t.Fatalf("the worker ended by itself: %s", w.ProcessState)
	}
}

// wire is one message of the channel to the stand-in keeper, with a descriptor beside.
type wire struct{ Op, Name, Other, Error string }

// serveKeeper answers one worker until its end.
func serveKeeper(s *store, channel *os.File, stop stop) {
	defer channel.Close()
	for call := 1; ; call++ {
		request, f, err := receive(channel)
		if err != nil {
			return
		}
		if stop.lost && call == stop.calls {
			closeAll(f)
			close(stop.reached)
			<-stop.gone
			return
		}
		var answer *os.File
		switch request.Op {
		case "store":
			err = s.Store(request.Name, f)
		case "open":
			err = s.Open(request.Name, f)
		case "fetch":
			answer, err = s.Fetch(request.Name)
		case "drop":
			err = s.Drop(request.Name)
		case "accept":
			answer, err = s.Accept(request.Name, request.Other)
		case "launched":
			s.launched <- request.Name
		}
		if call == stop.calls {
			closeAll(f, answer)
			close(stop.reached)
			<-stop.gone
			return
		}
		reply := wire{Op: "reply"}
		switch {
		case errors.Is(err, os.ErrNotExist):
			reply.Error = "none"
		case err != nil:
			reply.Error = err.Error()
		}
		err = send(channel, reply, answer)
		closeAll(f, answer)
		if err != nil {
			return
		}
	}
}

func send(channel *os.File, m wire, f *os.File) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var oob []byte
	if f != nil {
		f, err = duplicate(f) // Fd would make a non-blocking file blocking
		if err != nil {
			return err
		}
		defer f.Close()
		oob = unix.UnixRights(int(f.Fd()))
	}
	return unix.Sendmsg(int(channel.Fd()), text, oob, nil, 0)
}

func receive(channel *os.File) (m wire, f *os.File, err error) {
	text, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(channel.Fd()), text, oob, unix.MSG_CMSG_CLOEXEC)
	for errors.Is(err, unix.EINTR) {
		n, oobn, _, _, err = unix.Recvmsg(int(channel.Fd()), text, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if err != nil || n == 0 {
		return m, nil, fmt.Errorf("the channel has ended: %v", err)
	}
	files, err := rights(oob[:oobn])
	if err != nil {
		return m, nil, err
	}
	if len(files) > 0 {
		f = files[0]
	}
	return m, f, json.Unmarshal(text[:n], &m)
}

// remote is Descriptors in a worker.
type remote struct {
	mu      sync.Mutex
	channel *os.File
}

func (r *remote) call(m wire, f *os.File) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := send(r.channel, m, f); err != nil {
		return nil, err
	}
	reply, f, err := receive(r.channel)
	switch {
	case err != nil:
		return nil, err
	case reply.Error == "none":
		return nil, os.ErrNotExist
	case reply.Error != "":
		return nil, errors.New(reply.Error)
	}
	return f, nil
}

func (r *remote) Store(name string, f *os.File) error {
	_, err := r.call(wire{Op: "store", Name: name}, f)
	return err
}
func (r *remote) Open(name string, fifo *os.File) error {
	_, err := r.call(wire{Op: "open", Name: name}, fifo)
	return err
}
func (r *remote) Fetch(name string) (*os.File, error) {
	return r.call(wire{Op: "fetch", Name: name}, nil)
}
func (r *remote) Drop(prefix string) error {
	_, err := r.call(wire{Op: "drop", Name: prefix}, nil)
	return err
}
func (r *remote) Accept(listener, name string) (*os.File, error) {
	return r.call(wire{Op: "accept", Name: listener, Other: name}, nil)
}

func workerJob() (*remote, job) {
	var j job
	if err := json.Unmarshal([]byte(os.Getenv(jobEnv)), &j); err != nil {
		panic(err)
	}
	return &remote{channel: os.NewFile(3, "keeper")}, j
}

// copyRole is a worker that resumes and copies until it is killed.
func copyRole() int {
	keeper, j := workerJob()
	stdio, err := ResumeIO(keeper, "p", j.Stdio, j.Options)
	if err == nil {
		err = stdio.Started()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	if j.Exited {
		stdio.Exited()
	}
	select {}
}
