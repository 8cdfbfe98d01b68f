package keeper_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"perdure/recovery/keeper/client"
	"perdure/recovery/keeper/protocol"
)

// event is a line a worker writes to the test.
type event struct {
	Event  string // hello, request, exit, ping, noted, gave-up
	PID    int    // of the worker
	Life   int    // 1 for the keeper's first worker
	Method string
	Text   string
	Call   protocol.Call
	Exit   client.Exit
	Names  []string
	Wanted bool
}

// fake is the worker of the tests. Its n-th life has the n-th mode of TEST_LIVES
// (the last one repeats); modes are words joined by "+".
type fake struct {
	client *client.Client
	events *os.File
	life   int
	mode   string
}

func workerMain() int {
	w := &fake{life: countLife()}
	modes := strings.Split(os.Getenv("TEST_LIVES"), ",")
	w.mode = modes[min(w.life, len(modes))-1]
	var err error
	if w.events, err = os.OpenFile(os.Getenv("TEST_EVENTS"), os.O_WRONLY, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	if w.is("mute") {
		select {}
	}
	control := os.NewFile(3, "control")
	if w.is("garbage-control") {
		_, _ = unix.Write(3, []byte{200, 1, 2})
		select {}
	}
	if w.is("stuffed") {
		w.stuffControl()
	}
	if w.client, err = client.Connect(control, "fake"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	welcome := w.client.Welcome()
	w.say(event{Event: "hello", Names: welcome.Names, Wanted: welcome.ShutdownWanted, Text: welcome.Address})
	w.client.OnPing(func(request uint64, pong func()) {
		w.say(event{Event: "ping", Call: protocol.Call{Request: request}})
		if !w.is("nopong") {
			pong()
		}
	})
	go w.reportExits()
	if w.is("idle") {
		return 0
	}
	if w.is("crash") {
		return 1
	}
	if w.is("raw") {
		go w.serveRaw()
	} else {
		go w.serve()
	}
	<-w.client.Done()
	return 0
}

func countLife() int {
	f, err := os.OpenFile(os.Getenv("TEST_LIFE"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte{'.'}); err != nil {
		panic(err)
	}
	st, err := f.Stat()
	if err != nil {
		panic(err)
	}
	return int(st.Size())
}

func (w *fake) is(word string) bool {
	for _, have := range strings.Split(w.mode, "+") {
		if have == word {
			return true
		}
	}
	return false
}

func (w *fake) say(e event) {
	e.PID, e.Life = os.Getpid(), w.life
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	if _, err := w.events.Write(append(line, '\n')); err != nil {
		os.Exit(4)
	}
}

func (w *fake) reportExits() {
	for e := range w.client.Exits() {
		w.say(event{Event: "exit", Exit: e})
		if !w.is("noack") {
			w.client.Acknowledge(e.Seq)
		}
	}
}

// serve answers over ttrpc, every method from one handler.
func (w *fake) serve() {
	server, err := ttrpc.NewServer()
	if err != nil {
		panic(err)
	}
	methods := map[string]ttrpc.Method{}
	for name, handle := range w.methods() {
		methods[name] = func(ctx context.Context, unmarshal func(any) error) (any, error) {
			var in wrapperspb.StringValue
			if err := unmarshal(&in); err != nil {
				return nil, err
			}
			md, _ := ttrpc.GetMetadata(ctx)
			call := protocol.ReadCall(md.Get)
			text := in.Value
			if len(text) > 64 {
				text = text[:64]
			}
			w.say(event{Event: "request", Method: name, Call: call, Text: text})
			out, err := handle(ctx, call, in.Value)
			if err != nil {
				return nil, err
			}
			return wrapperspb.String(out), nil
		}
	}
	server.Register(service, methods)
	if err := server.Serve(context.Background(), w.client.Listener()); !errors.Is(err, net.ErrClosed) {
		panic(err)
	}
}

const service = "test.Fake"

type handler func(ctx context.Context, call protocol.Call, in string) (string, error)

func (w *fake) methods() map[string]handler {
	self := os.Getpid()
	return map[string]handler{
		"Echo": func(_ context.Context, _ protocol.Call, in string) (string, error) { return in, nil },
		"PID": func(context.Context, protocol.Call, string) (string, error) {
			return fmt.Sprint(self), nil
		},
		// Replayed is answered by the second worker that gets it.
		"Replayed": func(ctx context.Context, call protocol.Call, in string) (string, error) {
			if !call.Replay {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return in, nil
		},
		// Create is answered by the second worker that gets it; "failed" asks to
		// leave before.
		"Create": func(ctx context.Context, call protocol.Call, in string) (string, error) {
			switch {
			case in == "failed":
				return in, w.client.Leave(call.Request)
			case !call.Replay:
				<-ctx.Done()
				return "", ctx.Err()
			}
			return in, nil
		},
		// Late is answered by the life whose number it is given.
		"Late": func(ctx context.Context, _ protocol.Call, in string) (string, error) {
			if fmt.Sprint(w.life) != in {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return in, nil
		},
		"Wait": func(ctx context.Context, _ protocol.Call, in string) (string, error) {
			if in == "now" {
				return in, nil
			}
			<-ctx.Done()
			w.say(event{Event: "gave-up", Method: "Wait"})
			return "", ctx.Err()
		},
		"Deadline": func(ctx context.Context, call protocol.Call, _ string) (string, error) {
			if !call.Replay {
				<-ctx.Done()
			}
			at, ok := ctx.Deadline()
			return fmt.Sprint(ok, " ", time.Until(at).Milliseconds(), " ", at.UnixMilli()), nil
		},
		"Panic": func(context.Context, protocol.Call, string) (string, error) {
			go panic("as the test wants it")
			select {}
		},
		"Die": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			if fmt.Sprint(w.life) == in {
				return in, nil
			}
			_ = unix.Kill(self, unix.SIGKILL)
			select {}
		},
		"Stop": func(ctx context.Context, call protocol.Call, in string) (string, error) {
			if !call.Replay {
				_ = unix.Kill(self, unix.SIGSTOP)
				<-ctx.Done()
			}
			return in, nil
		},
		"Big": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			var n int
			_, err := fmt.Sscan(in, &n)
			return strings.Repeat("x", n), err
		},
		"Leave": func(_ context.Context, call protocol.Call, in string) (string, error) {
			return in, w.client.Leave(call.Request)
		},
		"WantShutdown": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			return in, w.client.WantShutdown()
		},
		"Exit": func(context.Context, protocol.Call, string) (string, error) {
			time.AfterFunc(0, func() { os.Exit(0) })
			select {}
		},
		"Rest": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			// The answer is on its way before the exit: the keeper drains.
			time.AfterFunc(20*time.Millisecond, func() { os.Exit(0) })
			return in, nil
		},
		"Hold": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			w.client.Hold(in == "on")
			return in, nil
		},
		// CloseConnections is answered by the life whose number it is given.
		"CloseConnections": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			if fmt.Sprint(w.life) == in {
				return in, nil
			}
			for fd := 4; fd < 64; fd++ {
				if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err == nil && kind == unix.SOCK_STREAM {
					_ = unix.Shutdown(fd, unix.SHUT_RDWR)
				}
			}
			select {}
		},
		"Spawn": w.spawn,
		// Stopped starts a shell as runtimes are started, in a process group of its own.
		"Stopped": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", in}, &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}})
			if err != nil {
				return "", err
			}
			return strconv.Itoa(p.Pid), nil
		},
		"Store": w.store,
		"Drop": func(_ context.Context, _ protocol.Call, in string) (string, error) {
			return in, w.client.Drop(in)
		},
		// DropAfter is answered by the second worker that gets it.
		"DropAfter": func(ctx context.Context, call protocol.Call, in string) (string, error) {
			if err := w.client.DropAfter(in, call.Request); err != nil {
				return "", err
			}
			if !call.Replay {
				w.say(event{Event: "noted"})
				<-ctx.Done()
			}
			return in, ctx.Err()
		},
		"TakeMaster": w.takeMaster,
		"Read":       w.read,
		"Wake":       w.wake,
		"Listen":     w.listen,
		"Accept":     w.accept,
	}
}

// spawn runs this program as spawner, whose children become orphans.
func (w *fake) spawn(_ context.Context, _ protocol.Call, in string) (string, error) {
	p, err := os.StartProcess("/proc/self/exe", append([]string{"keeper.test", "spawner"}, strings.Fields(in)...), &os.ProcAttr{Dir: "/"})
	if err != nil {
		return "", err
	}
	_, err = p.Wait()
	return in, err
}

// store opens the fifo or file "name path" and leaves it with the keeper.
func (w *fake) store(_ context.Context, _ protocol.Call, in string) (string, error) {
	name, path, _ := strings.Cut(in, " ")
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return name, w.client.Store(name, f)
}

// read answers with what one read of a stored descriptor gives.
func (w *fake) read(_ context.Context, _ protocol.Call, in string) (string, error) {
	f, err := w.client.Fetch(in)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "not stored", nil
		}
		return "", err
	}
	defer f.Close()
	buf := make([]byte, 100)
	n, err := f.Read(buf)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(buf[:n]), err
}

func (w *fake) wake(_ context.Context, _ protocol.Call, in string) (string, error) {
	w.client.Wake(in, unix.EPOLLIN)
	return in, nil
}

func (w *fake) listen(_ context.Context, _ protocol.Call, in string) (string, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: in, Net: "unix"})
	if err != nil {
		return "", err
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return "", err
	}
	defer f.Close()
	return in, w.client.Store("console", f)
}

// accept takes a pty master over as package runtime does it.
func (w *fake) accept(_ context.Context, _ protocol.Call, in string) (string, error) {
	conn, err := w.client.Accept("console", "console/conn")
	if errors.Is(err, unix.EAGAIN) {
		return "nothing", nil
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if in == "die" {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	}
	return "accepted", nil
}

// takeMaster receives the pty master from the accepted connection.
func (w *fake) takeMaster(_ context.Context, _ protocol.Call, in string) (string, error) {
	f, err := w.client.Fetch("console/conn")
	if err != nil {
		return "", err
	}
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 100), rights)
	if err != nil {
		return "", err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return "", fmt.Errorf("no descriptor: %v", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return "", err
	}
	master := os.NewFile(uintptr(fds[0]), "master")
	defer master.Close()
	return in, w.client.Store("console/master", master)
}
