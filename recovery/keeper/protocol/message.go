package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Type is the first byte of a control packet.
type Type uint8

// Worker to keeper.
const (
	Hello        Type = 1 + iota // first packet of a worker
	Store                        // keep the attached descriptor under Name, replacing one of that name
	Fetch                        // give a duplicate of the descriptor Name
	Drop                         // close Name and everything below Name + "/", when request After is answered; 0: now
	Accept                       // accept on the stored Listener, keep the connection as Name, give a duplicate
	Wake                         // after this worker, start one when Name is ready for Mask (poll bits); 0 takes it back
	ExitAck                      // exit Seq is journaled: forget it (this one only)
	Hold                         // On: drop no exit, an intent is open
	Watch                        // the exit of Pid, Start is wanted: never drop it
	Pong                         // answer to Ping Number
	WantShutdown                 // remember, over workers, that containerd asked for Shutdown
	Leave                        // unlink the socket; exit when every answer but Wait's is written
	Open                         // open the attached fifo read-write, keep that as Name
)

// Keeper to worker.
const (
	Welcome Type = 64 + iota // answer to Hello; More: the names go on in the next packet
	Reply                    // answer to Call; Error is "" or a text; Fetch and Accept attach a descriptor
	Conn                     // a connection of containerd, its descriptor attached
	Exit                     // a child was reaped
	Ping                     // answer with Pong from where the request Request is executed
)

// MaxPacket bounds a control packet, in bytes, and so every string in it.
const MaxPacket = 64 << 10

// Errors of a Reply that a worker tells apart.
const (
	NotStored       = "no descriptor is stored under this name"
	NothingToAccept = "no connection is waiting on this listener"
)

// ErrMessage means a packet is not a control message of this version.
var ErrMessage = errors.New("malformed control message")

// Message is any control message; which fields travel depends on Type, see
// walk. Descriptors travel beside it, as SCM_RIGHTS.
type Message struct {
	Type Type

	Protocol uint64 // Hello, Welcome: protocol.Version
	Version  string // Hello, Welcome: the program's version, for people

	Call     uint64 // chosen by the worker, repeated in the Reply
	Name     string
	Listener string
	Error    string
	Mask     uint64 // EPOLLIN and so on
	After    uint64 // Drop: a request number, 0: none

	Seq    uint64 // Exit: ascending from 1 in a keeper's life
	Pid    uint64
	Start  uint64 // clock ticks since boot, field 22 of /proc/pid/stat; 0: unknown
	Status uint64 // wait status as wait4 gives it
	At     uint64 // Unix nanoseconds at which it was reaped

	Number  uint64 // Ping, Pong
	Request uint64 // request number, 0: none
	On      bool

	KeeperPID      uint64
	Address        string // unix:///...: the keeper's own socket
	Namespace      string
	Group          string
	ShutdownWanted bool
	Oldest         uint64 // answers to lower request numbers will not be asked for again
	More           bool
	Names          []string // stored descriptors

	ID uint64 // Conn: number of the connection
}

// walk visits the fields of m that travel, in wire order. It is the one
// definition of the layout, used by both directions.
func (m *Message) walk(w *walker) bool {
	switch m.Type {
	case Hello:
		w.number(&m.Protocol)
		w.text(&m.Version)
	case Store, Fetch, Open:
		w.number(&m.Call)
		w.text(&m.Name)
	case Drop:
		w.number(&m.Call)
		w.text(&m.Name)
		w.number(&m.After)
	case Accept:
		w.number(&m.Call)
		w.text(&m.Listener)
		w.text(&m.Name)
	case Wake:
		w.text(&m.Name)
		w.number(&m.Mask)
	case ExitAck:
		w.number(&m.Seq)
	case Hold:
		w.flag(&m.On)
	case Watch:
		w.number(&m.Pid)
		w.number(&m.Start)
	case Pong:
		w.number(&m.Number)
	case WantShutdown:
		w.number(&m.Call)
	case Leave:
		w.number(&m.Call)
		w.number(&m.Request)
	case Welcome:
		m.walkWelcome(w)
	case Reply:
		w.number(&m.Call)
		w.text(&m.Error)
	case Conn:
		w.number(&m.ID)
	case Exit:
		w.number(&m.Seq)
		w.number(&m.Pid)
		w.number(&m.Start)
		w.number(&m.Status)
		w.number(&m.At)
	case Ping:
		w.number(&m.Number)
		w.number(&m.Request)
	default:
		return false
	}
	return true
}

func (m *Message) walkWelcome(w *walker) {
	w.number(&m.Protocol)
	w.text(&m.Version)
	w.number(&m.KeeperPID)
	w.text(&m.Address)
	w.text(&m.Namespace)
	w.text(&m.Group)
	w.flag(&m.ShutdownWanted)
	w.number(&m.Oldest)
	w.flag(&m.More)
	w.texts(&m.Names)
}

// Append appends m in wire form to b. It panics on an unknown type, which is a
// fault of the caller; the length is checked where the packet is sent.
func (m Message) Append(b []byte) []byte {
	w := walker{b: append(b, byte(m.Type)), writing: true}
	if !m.walk(&w) {
		panic(fmt.Sprintf("control message of unknown type %d", m.Type))
	}
	return w.b
}

// Parse reads one packet. The error is ErrMessage.
func Parse(packet []byte) (Message, error) {
	if len(packet) == 0 || len(packet) > MaxPacket {
		return Message{}, ErrMessage
	}
	m := Message{Type: Type(packet[0])}
	w := walker{b: packet[1:]}
	if !m.walk(&w) || w.bad || len(w.b) > 0 {
		return Message{}, ErrMessage
	}
	return m, nil
}

// walker writes the fields it is shown to the end of b, or reads them from its
// beginning.
type walker struct {
	b       []byte
	writing bool
	bad     bool // what was read is no field
}

func (w *walker) number(n *uint64) {
	if w.writing {
		w.b = binary.AppendUvarint(w.b, *n)
		return
	}
	value, size := binary.Uvarint(w.b)
	if w.bad = w.bad || size <= 0; !w.bad {
		*n, w.b = value, w.b[size:]
	}
}

func (w *walker) text(s *string) {
	n := uint64(len(*s))
	w.number(&n)
	if w.writing {
		w.b = append(w.b, *s...)
		return
	}
	if w.bad = w.bad || n > uint64(len(w.b)); !w.bad {
		*s, w.b = string(w.b[:n]), w.b[n:]
	}
}

func (w *walker) flag(f *bool) {
	n := uint64(0)
	if *f {
		n = 1
	}
	w.number(&n)
	w.bad = w.bad || n > 1
	*f = n == 1
}

func (w *walker) texts(list *[]string) {
	n := uint64(len(*list))
	w.number(&n)
	for i := range n {
		if w.bad {
			return
		}
		if !w.writing {
			*list = append(*list, "")
		}
		w.text(&(*list)[i])
	}
}
