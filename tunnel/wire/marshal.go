package wire

import (
	"errors"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// MaxMessage is the most bytes that one encoded packet may have. It is gRPC's
// default limit, which no known peer changes; a longer message ends the stream
// it is sent on with everything on it. COMPAT 1.1.
const MaxMessage = 4 << 20

// ErrTooLarge says that a packet would be longer than MaxMessage.
var ErrTooLarge = errors.New("packet longer than 4 MiB")

// frame is the memory of one encoded packet: the bytes before the payload, and
// the list of buffers.
type frame struct {
	head [32]byte
	bufs [5]mem.Buffer
}

// Marshal encodes p. The result holds the payload's own buffers, behind a small
// one for what precedes them, and has its own reference to each: p keeps its
// payload and must Free it as if Marshal had not been called, before or after
// the result is freed. Only the fields that p.Type uses are written; of a type
// that is not known, the type alone. Texts are cut to their limits and made
// valid UTF-8, because a peer's decoder refuses a packet that is not.
func Marshal(p *Packet) (mem.BufferSlice, error) {
	var scratch [128]byte
	body := appendBody(scratch[:0], p)
	size := len(body)
	if p.Type == Data {
		size += p.Payload.Len()
	}
	f := new(frame)
	head := f.head[:0]
	if p.Type != 0 {
		head = protowire.AppendTag(head, fieldType, protowire.VarintType)
		head = protowire.AppendVarint(head, uint64(p.Type))
	}
	if of := oneof(p.Type); of != 0 {
		head = protowire.AppendTag(head, of, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(size))
		head = append(head, body...)
	}
	if len(head)-len(body)+size > MaxMessage {
		return nil, ErrTooLarge
	}
	bufs := append(f.bufs[:0], mem.SliceBuffer(head))
	if p.Type == Data {
		bufs = p.Payload.appendRefs(bufs)
	}
	return bufs, nil
}

// appendBody appends the message inside the packet, of DATA all but the bytes
// themselves, which come last. Fields are in the order of their numbers.
func appendBody(b []byte, p *Packet) []byte {
	switch p.Type {
	case DialRequest:
		b = appendText(b, 1, p.Protocol, maxProtocol)
		b = appendText(b, 2, p.Address, maxAddress)
		b = appendInt(b, 3, int64(p.DialID))
		b = appendInt(b, 64, p.Window)
		b = appendInt(b, 65, int64(protowire.EncodeBool(p.CanHalfClose)))
	case DialResponse:
		b = appendText(b, 1, p.Error, maxError)
		b = appendInt(b, 2, int64(p.ConnectionID))
		b = appendInt(b, 3, int64(p.DialID))
		b = appendInt(b, 64, p.Window)
		b = appendInt(b, 65, int64(p.Reason))
	case CloseRequest:
		b = appendInt(b, 1, int64(p.ConnectionID))
		b = appendInt(b, 64, int64(p.Reason))
	case CloseResponse:
		b = appendText(b, 1, p.Error, maxError)
		b = appendInt(b, 2, int64(p.ConnectionID))
		b = appendInt(b, 64, int64(p.Reason))
	case Data:
		b = appendInt(b, 1, int64(p.ConnectionID))
		b = appendText(b, 2, p.Error, maxError)
		if n := p.Payload.Len(); n > 0 {
			b = protowire.AppendTag(b, 3, protowire.BytesType)
			b = protowire.AppendVarint(b, uint64(n))
		}
	case DialClose:
		b = appendInt(b, 1, int64(p.DialID))
	case Credit:
		b = appendInt(b, 1, int64(p.ConnectionID))
		b = appendInt(b, 2, p.Window)
	case HalfClose:
		b = appendInt(b, 1, int64(p.ConnectionID))
	case Ping, Pong:
		b = appendInt(b, 1, int64(p.Nonce))
	case ServerCount:
		b = appendInt(b, 1, p.Count)
	case Drain, Ready:
	}
	return b
}

// appendInt appends a varint field, unless it has its default value.
func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, num, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

// appendText appends a string field, unless it is empty.
func appendText(b []byte, num protowire.Number, s string, limit int) []byte {
	if s == "" {
		return b
	}
	s = clean(s, limit)
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return protowire.AppendString(b, s)
}
