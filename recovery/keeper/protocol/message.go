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
func (m *Message) walk(v visitor) bool {
	switch m.Type {
	case Hello:
		v.number(&m.Protocol)
		v.text(&m.Version)
	case Store, Fetch, Open:
		v.number(&m.Call)
		v.text(&m.Name)
	case Drop:
		v.number(&m.Call)
		v.text(&m.Name)
		v.number(&m.After)
	case Accept:
		v.number(&m.Call)
		v.text(&m.Listener)
		v.text(&m.Name)
	case Wake:
		v.text(&m.Name)
		v.number(&m.Mask)
	case ExitAck:
		v.number(&m.Seq)
	case Hold:
		v.flag(&m.On)
	case Watch:
		v.number(&m.Pid)
		v.number(&m.Start)
	case Pong:
		v.number(&m.Number)
	case WantShutdown:
		v.number(&m.Call)
	case Leave:
		v.number(&m.Call)
		v.number(&m.Request)
	case Welcome:
		m.walkWelcome(v)
	case Reply:
		v.number(&m.Call)
		v.text(&m.Error)
	case Conn:
		v.number(&m.ID)
	case Exit:
		v.number(&m.Seq)
		v.number(&m.Pid)
		v.number(&m.Start)
		v.number(&m.Status)
		v.number(&m.At)
	case Ping:
		v.number(&m.Number)
		v.number(&m.Request)
	default:
		return false
	}
	return true
}

func (m *Message) walkWelcome(v visitor) {
	v.number(&m.Protocol)
	v.text(&m.Version)
	v.number(&m.KeeperPID)
	v.text(&m.Address)
	v.text(&m.Namespace)
	v.text(&m.Group)
	v.flag(&m.ShutdownWanted)
	v.number(&m.Oldest)
	v.flag(&m.More)
	v.texts(&m.Names)
}

// Append appends m in wire form to b. It panics on an unknown type, which is a
// fault of the caller; the length is checked where the packet is sent.
func (m *Message) Append(b []byte) []byte {
	e := encoder{append(b, byte(m.Type))}
	if !m.walk(&e) {
		panic(fmt.Sprintf("control message of unknown type %d", m.Type))
	}
	return e.b
}

// Parse reads one packet. The error is ErrMessage.
func Parse(packet []byte) (Message, error) {
	if len(packet) == 0 || len(packet) > MaxPacket {
		return Message{}, ErrMessage
	}
	m := Message{Type: Type(packet[0])}
	d := decoder{b: packet[1:]}
	if !m.walk(&d) || d.bad || len(d.b) > 0 {
		return Message{}, ErrMessage
	}
	return m, nil
}

// visitor is the encoder or the decoder.
type visitor interface {
	number(*uint64)
	text(*string)
	flag(*bool)
	texts(*[]string)
}

type encoder struct{ b []byte }

func (e *encoder) number(n *uint64) { e.b = binary.AppendUvarint(e.b, *n) }

func (e *encoder) text(s *string) {
	e.b = binary.AppendUvarint(e.b, uint64(len(*s)))
	e.b = append(e.b, *s...)
}

func (e *encoder) flag(f *bool) {
	n := uint64(0)
	if *f {
		n = 1
	}
	e.number(&n)
}

func (e *encoder) texts(list *[]string) {
	n := uint64(len(*list))
	e.number(&n)
	for i := range *list {
		e.text(&(*list)[i])
	}
}

type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) number(n *uint64) {
	value, size := binary.Uvarint(d.b)
	if d.bad || size <= 0 {
		d.bad = true
		return
	}
	*n, d.b = value, d.b[size:]
}

func (d *decoder) text(s *string) {
	var n uint64
	d.number(&n)
	if d.bad || n > uint64(len(d.b)) {
		d.bad = true
		return
	}
	*s, d.b = string(d.b[:n]), d.b[n:]
}

func (d *decoder) flag(f *bool) {
	var n uint64
	d.number(&n)
	d.bad = d.bad || n > 1
	*f = n == 1
}

func (d *decoder) texts(list *[]string) {
	var n uint64
	d.number(&n)
	for ; n > 0 && !d.bad; n-- {
		var s string
		d.text(&s)
		*list = append(*list, s)
	}
}
