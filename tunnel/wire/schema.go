package wire

import "google.golang.org/protobuf/encoding/protowire"

// fieldType is the number of Packet.type.
const fieldType protowire.Number = 1

// oneof is the number of the message that a packet of type t carries, 0 for a
// type that is not known. Our own types have the same number there (DESIGN 4.1).
func oneof(t PacketType) protowire.Number {
	switch t {
	case DialRequest:
		return 2
	case DialResponse:
		return 3
	case Data:
		return 4
	case CloseRequest:
		return 5
	case CloseResponse:
		return 6
	case DialClose:
		return 7
	case Drain:
		return 8
	case Credit, HalfClose, Ping, Pong, Ready, ServerCount:
		return protowire.Number(t)
	}
	return 0
}

// field is a field of Packet, as the codec sets it.
type field uint8

const (
	fieldUnknown field = iota
	fieldDialID
	fieldConnectionID
	fieldProtocol
	fieldAddress
	fieldError
	fieldPayload
	fieldWindow
	fieldCanHalfClose
	fieldReason
	fieldNonce
	fieldCount
)

// isBytes reports whether the field is length-delimited; the others are varints.
func (f field) isBytes() bool {
	switch f {
	case fieldProtocol, fieldAddress, fieldError, fieldPayload:
		return true
	}
	return false
}

// schema says which field has number num in the message that oneof field "of"
// carries. COMPAT 1.2; PROTOCOL.md from 64 on.
func schema(of, num protowire.Number) field {
	switch of {
	case 2:
		return pick(num, fieldProtocol, fieldAddress, fieldDialID, fieldWindow, fieldCanHalfClose)
	case 3:
		return pick(num, fieldError, fieldConnectionID, fieldDialID, fieldWindow, fieldReason)
	case 4:
		return pick(num, fieldConnectionID, fieldError, fieldPayload, 0, 0)
	case 5:
		return pick(num, fieldConnectionID, 0, 0, fieldReason, 0)
	case 6:
		return pick(num, fieldError, fieldConnectionID, 0, fieldReason, 0)
	case 7:
		return pick(num, fieldDialID, 0, 0, 0, 0)
	case 64:
		return pick(num, fieldConnectionID, fieldWindow, 0, 0, 0)
	case 65:
		return pick(num, fieldConnectionID, 0, 0, 0, 0)
	case 66, 67:
		return pick(num, fieldNonce, 0, 0, 0, 0)
	case 69:
		return pick(num, fieldCount, 0, 0, 0, 0)
	}
	return fieldUnknown
}

// pick is the field with number num among those with numbers 1, 2, 3, 64 and 65.
func pick(num protowire.Number, f1, f2, f3, f64, f65 field) field {
	switch num {
	case 1:
		return f1
	case 2:
		return f2
	case 3:
		return f3
	case 64:
		return f64
	case 65:
		return f65
	}
	return fieldUnknown
}

// isOneof reports whether num is a message of Packet's oneof.
func isOneof(num protowire.Number) bool {
	return num >= 2 && num <= 8 || num >= 64 && num <= 69
}

// messageName names a message of the oneof, for errors.
func messageName(of protowire.Number) string {
	switch of {
	case 2:
		return "dialRequest"
	case 3:
		return "dialResponse"
	case 4:
		return "data"
	case 5:
		return "closeRequest"
	case 6:
		return "closeResponse"
	case 7:
		return "closeDial"
	case 8:
		return "drain"
	case 64:
		return "credit"
	case 65:
		return "halfClose"
	case 66:
		return "ping"
	case 67:
		return "pong"
	case 68:
		return "ready"
	case 69:
		return "serverCount"
	}
	return "packet"
}

// String names the field, for errors.
func (f field) String() string {
	switch f {
	case fieldDialID:
		return "random"
	case fieldConnectionID:
		return "connectID"
	case fieldProtocol:
		return "protocol"
	case fieldAddress:
		return "address"
	case fieldError:
		return "error"
	case fieldPayload:
		return "data"
	case fieldWindow:
		return "window"
	case fieldCanHalfClose:
		return "can_half_close"
	case fieldReason:
		return "reason"
	case fieldNonce:
		return "nonce"
	case fieldCount:
		return "count"
	}
	return "unknown field"
}
