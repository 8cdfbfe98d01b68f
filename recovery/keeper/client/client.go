package client

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"perdure/recovery/keeper/protocol"
)

// ErrGone means that the control channel has ended: the keeper died, or threw
// this worker out. Nothing can be repaired from here; the worker leaves.
var ErrGone = errors.New("the keeper's control channel has ended")

// Welcome is what a keeper tells a new worker.
type Welcome struct {
	Version        string // of the keeper's program, for people
	KeeperPID      int
	Address        string // unix:///...: the socket containerd connects to
	Namespace      string
	Group          string   // sandbox id, or the id of a lone container
	ShutdownWanted bool     // an earlier worker called WantShutdown
	Oldest         uint64   // answers to lower request numbers will not be asked for again
	Names          []string // stored descriptors
}

// Exit is a child the keeper has reaped.
type Exit struct {
	Seq    uint64
	Pid    int
	Start  uint64 // clock ticks since boot, 0 where /proc had nothing to say
	Status syscall.WaitStatus
	At     time.Time
}

// Client is a connected control channel.
type Client struct {
	conn    *net.UnixConn
	welcome Welcome
	conns   *queue[net.Conn]
	exits   *queue[Exit]
	done    chan struct{}
	packet  []byte // of receive, which only one goroutine calls

	sending sync.Mutex

	mu     sync.Mutex
	call   uint64
	calls  map[uint64]chan reply
	onPing func(request uint64, pong func())
}

type reply struct {
	file *os.File
	err  error
}

// Connect says hello on ctl (fd 3 of a worker) and waits for the keeper's
// welcome. version names the worker's program, for people. ctl is used up. An
// error means that this worker cannot serve this keeper and should exit.
func Connect(ctl *os.File, version string) (*Client, error) {
	generic, err := net.FileConn(ctl)
	ctl.Close()
	if err != nil {
		return nil, fmt.Errorf("control channel: %w", err)
	}
	conn, ok := generic.(*net.UnixConn)
	if !ok {
		generic.Close()
		return nil, errors.New("control channel: not a unix socket")
	}
	c := &Client{
		conn:   conn,
		conns:  newQueue[net.Conn](),
		exits:  newQueue[Exit](),
		done:   make(chan struct{}),
		packet: make([]byte, protocol.MaxPacket),
		calls:  map[uint64]chan reply{},
		onPing: func(_ uint64, pong func()) { pong() },
	}
	if err := c.greet(version); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greeting the keeper: %w", err)
	}
	go c.read()
	return c, nil
}

func (c *Client) greet(version string) error {
	if err := c.send(protocol.Message{Type: protocol.Hello, Protocol: protocol.Version, Version: version}, nil); err != nil {
		return err
	}
	for more := true; more; {
		m, f, err := c.receive()
		if err != nil {
			return err
		}
		if f != nil {
			f.Close()
		}
		if m.Type != protocol.Welcome {
			return fmt.Errorf("message of type %d instead of a welcome", m.Type)
		}
		if m.Protocol != protocol.Version {
			return fmt.Errorf("keeper speaks protocol %d, this worker %d", m.Protocol, protocol.Version)
		}
		c.welcome = Welcome{
			Version: m.Version, KeeperPID: int(m.KeeperPID), Address: m.Address, Namespace: m.Namespace,
			Group: m.Group, ShutdownWanted: m.ShutdownWanted, Oldest: m.Oldest,
			Names: append(c.welcome.Names, m.Names...),
		}
		more = m.More
	}
	return nil
}

// Welcome is what the keeper said at the start of this worker.
func (c *Client) Welcome() Welcome { return c.welcome }

// Done is closed when the control channel has ended: leave.
func (c *Client) Done() <-chan struct{} { return c.done }

// Exits yields every exit that is not acknowledged, in the order in which the
// children were reaped, those of earlier workers' days first. It is closed when
// the channel ends.
func (c *Client) Exits() <-chan Exit { return c.exits.out }

// OnPing sets what answers the keeper's pings: f must call pong, at once or
// from another goroutine, when the request's executor is alive; 0 or an unknown
// number asks for the worker as a whole. f itself must not block. A worker that
// lets a ping lie is killed after 3 seconds.
func (c *Client) OnPing(f func(request uint64, pong func())) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onPing = f
}

func (c *Client) ping(m protocol.Message) {
	c.mu.Lock()
	f := c.onPing
	c.mu.Unlock()
	f(m.Request, func() { c.tell(protocol.Message{Type: protocol.Pong, Number: m.Number}) })
}

// read dispatches the keeper's messages until the channel ends.
func (c *Client) read() {
	for {
		m, f, err := c.receive()
		if err != nil {
			break
		}
		switch m.Type {
		case protocol.Reply:
			c.answer(m, f)
			continue
		case protocol.Conn:
			c.connection(f)
			continue
		case protocol.Exit:
			c.exits.put(Exit{m.Seq, int(m.Pid), m.Start, syscall.WaitStatus(m.Status), time.Unix(0, int64(m.At))})
		case protocol.Ping:
			c.ping(m)
		}
		if f != nil {
			f.Close()
		}
	}
	c.end()
}

func (c *Client) connection(f *os.File) {
	if f == nil {
		return
	}
	defer f.Close()
	if conn, err := net.FileConn(f); err == nil {
		c.conns.put(conn)
	}
}

func (c *Client) end() {
	c.conn.Close()
	c.mu.Lock()
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, waiting := range calls {
		waiting <- reply{err: ErrGone}
	}
	close(c.done)
	c.conns.close()
	c.exits.close()
}

// receive reads one packet and the descriptor that came with it, if any.
func (c *Client) receive() (protocol.Message, *os.File, error) {
	rights := make([]byte, unix.CmsgSpace(4*8))
	n, rn, _, _, err := c.conn.ReadMsgUnix(c.packet, rights)
	if err != nil {
		return protocol.Message{}, nil, err
	}
	if n == 0 {
		return protocol.Message{}, nil, ErrGone
	}
	f := descriptor(rights[:rn])
	m, err := protocol.Parse(c.packet[:n])
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	return m, f, err
}

// descriptor takes the first descriptor out of a control message. Further ones
// are never sent by a keeper; they are closed.
func descriptor(rights []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	var f *os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if f != nil {
				unix.Close(fd)
				continue
			}
			f = os.NewFile(uintptr(fd), "keeper")
		}
	}
	return f
}

// send writes one packet, and lends f's descriptor to it.
func (c *Client) send(m protocol.Message, f *os.File) error {
	packet := m.Append(nil)
	if len(packet) > protocol.MaxPacket {
		return fmt.Errorf("control message of %d bytes, at most %d are possible", len(packet), protocol.MaxPacket)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if f == nil {
		_, _, err := c.conn.WriteMsgUnix(packet, nil, nil)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var sendErr error
	err = raw.Control(func(fd uintptr) {
		_, _, sendErr = c.conn.WriteMsgUnix(packet, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sendErr)
}

// tell sends a message that has no answer. A channel that has ended shows in
// Done; the message is then of no use to anybody.
func (c *Client) tell(m protocol.Message) {
	_ = c.send(m, nil)
}
