package wire

import "strconv"

// PacketType is the value of Packet.type; dispatch is on it alone. COMPAT 1.2.
type PacketType int32

// The plain protocol's packet types.
const (
	DialRequest   PacketType = 0
	DialResponse  PacketType = 1
	CloseRequest  PacketType = 2
	CloseResponse PacketType = 3
	Data          PacketType = 4
	DialClose     PacketType = 5
	Drain         PacketType = 6
)

// Culvert's packet types, each sent only when its extension was negotiated.
const (
	// Credit grants the receiver Window more bytes of DATA on ConnectionID (extension "credit").
	Credit PacketType = 64
	// HalfClose says that its sender sends no more DATA on ConnectionID (extension "half-close").
	HalfClose PacketType = 65
	// Ping asks for a Pong with the same Nonce (extension "ping").
	Ping PacketType = 66
	// Pong answers a Ping.
	Pong PacketType = 67
	// Ready says that the agent keeps this link and may be given dials (extension "ready").
	Ready PacketType = 68
	// ServerCount tells an agent that the number of servers is now Count (extension "server-count").
	ServerCount PacketType = 69
)

// String returns the name used in metrics and logs: the protocol's own name, or
// the number in decimal for a type that is not known. COMPAT 1.2.
func (t PacketType) String() string {
	switch t {
	case DialRequest:
		return "DIAL_REQ"
	case DialResponse:
		return "DIAL_RSP"
	case CloseRequest:
		return "CLOSE_REQ"
	case CloseResponse:
		return "CLOSE_RSP"
	case Data:
		return "DATA"
	case DialClose:
		return "DIAL_CLS"
	case Drain:
		return "DRAIN"
	case Credit:
		return "CREDIT"
	case HalfClose:
		return "HALF_CLOSE"
	case Ping:
		return "PING"
	case Pong:
		return "PONG"
	case Ready:
		return "READY"
	case ServerCount:
		return "SERVER_COUNT"
	}
	return strconv.Itoa(int(t))
}

// Packet is one message of either service. Only the fields that its Type uses
// mean anything; the codec writes only those. A Packet is a plain value: copying
// it copies the reference to its payload, not the ownership. Whoever holds a
// decoded Data packet owns Payload and must Free it or hand it on exactly once.
type Packet struct {
	Type PacketType

	// Mismatched is set by the decoder when the payload message that Type asks
	// for was absent, or another one was there. Such a packet carries nothing
	// else that may be used. The encoder ignores it.
	Mismatched bool

	DialID       DialID       // DIAL_REQ, DIAL_RSP, DIAL_CLS
	ConnectionID ConnectionID // DIAL_RSP, CLOSE_REQ, CLOSE_RSP, DATA, CREDIT, HALF_CLOSE

	Protocol string // DIAL_REQ
	Address  string // DIAL_REQ
	Error    string // DIAL_RSP, CLOSE_RSP, DATA: text for people and old peers

	Payload Payload // DATA

	// Window is in bytes: in DIAL_REQ and DIAL_RSP the initial credit that the
	// sender of the packet grants, in CREDIT the credit added. Extension "credit".
	Window int64
	// CanHalfClose says in DIAL_REQ that the client side of this tunnel can take
	// and give a HALF_CLOSE. Extension "half-close".
	CanHalfClose bool
	// Reason says why, in DIAL_RSP, CLOSE_REQ and CLOSE_RSP. Extension "reason".
	Reason Reason
	// Nonce ties a PONG to its PING.
	Nonce uint64
	// Count is the number of servers in SERVER_COUNT.
	Count int64
}
