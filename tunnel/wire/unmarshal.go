package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// ErrMalformed says that bytes are not a packet; the text names the field.
var ErrMalformed = errors.New("malformed packet")

// Unmarshal decodes data into p, overwriting all of it; a payload that p had is
// not freed. The caller keeps its references to data and may free them as soon
// as Unmarshal returns: p.Payload has its own. The caller owns p.Payload.
//
// It accepts what a proto3 decoder accepts: unknown fields are skipped, a field
// with another wire type than its own is unknown, the last of several values
// wins, the last message of the oneof wins, and of one message given twice the
// second is merged into the first. A packet that carries another message than
// its type asks for, or none, is no error: it is Mismatched, and holds nothing
// but its type; the same goes for a type that is not known, except that it is
// not Mismatched. Bytes that are no message are ErrMalformed, and p is empty.
//
// What a peer makes it keep is bounded: texts are cut to their limits, and a
// payload that is small, or lies in many small buffers, is copied, so that it
// does not hold on to more memory than it shows.
func Unmarshal(data mem.BufferSlice, p *Packet) error {
	*p = Packet{}
	d := decoder{r: newReader(data), p: p}
	if err := d.packet(); err != nil {
		p.Payload.Free()
		*p = Packet{}
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	want := oneof(p.Type)
	if want == d.of && want != 0 {
		return nil
	}
	p.Payload.Free()
	*p = Packet{Type: p.Type, Mismatched: want != 0}
	return nil
}

type decoder struct {
	r  reader
	p  *Packet
	of protowire.Number // the message of the oneof that p holds
}

// packet decodes the fields of Packet.
func (d *decoder) packet() error {
	for d.r.left > 0 {
		num, typ, err := d.r.tag()
		if err != nil {
			return fmt.Errorf("packet: %w", err)
		}
		switch {
		case num == fieldType && typ == protowire.VarintType:
			var v uint64
			v, err = d.r.varint()
			d.p.Type = PacketType(int32(v))
			err = named("packet.type", err)
		case isOneof(num) && typ == protowire.BytesType:
			err = d.message(num)
		default:
			if err = d.r.skipField(num, typ); err != nil {
				err = fmt.Errorf("packet field %d: %w", num, err)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func named(field string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", field, err)
}

// message decodes one message of the oneof.
func (d *decoder) message(of protowire.Number) error {
	n, err := d.r.length()
	if err != nil {
		return named(messageName(of), err)
	}
	if d.of != of {
		d.p.Payload.Free()
		*d.p = Packet{Type: d.p.Type}
		d.of = of
	}
	outer := d.r.left - n
	d.r.left = n
	for d.r.left > 0 {
		num, typ, err := d.r.tag()
		if err != nil {
			return named(messageName(of), err)
		}
		f := schema(of, num)
		switch {
		case f != fieldUnknown && f.isBytes() && typ == protowire.BytesType:
			err = d.bytes(f)
		case f != fieldUnknown && !f.isBytes() && typ == protowire.VarintType:
			err = d.varint(f)
		default:
			if err = d.r.skipField(num, typ); err != nil {
				return fmt.Errorf("%s field %d: %w", messageName(of), num, err)
			}
		}
		if err != nil {
			return fmt.Errorf("%s.%s: %w", messageName(of), f, err)
		}
	}
	d.r.left = outer
	return nil
}

func (d *decoder) varint(f field) error {
	v, err := d.r.varint()
	if err != nil {
		return err
	}
	switch f {
	case fieldDialID:
		d.p.DialID = DialID(v)
	case fieldConnectionID:
		d.p.ConnectionID = ConnectionID(v)
	case fieldWindow:
		d.p.Window = int64(v)
	case fieldCanHalfClose:
		d.p.CanHalfClose = protowire.DecodeBool(v)
	case fieldReason:
		d.p.Reason = knownReason(v)
	case fieldNonce:
		d.p.Nonce = v
	case fieldCount:
		d.p.Count = int64(v)
	}
	return nil
}

func (d *decoder) bytes(f field) error {
	n, err := d.r.length()
	if err != nil {
		return err
	}
	switch f {
	case fieldProtocol:
		d.p.Protocol = d.r.text(n, maxProtocol)
	case fieldAddress:
		d.p.Address = d.r.text(n, maxAddress)
	case fieldError:
		d.p.Error = d.r.text(n, maxError)
	case fieldPayload:
		d.p.Payload.Free()
		d.p.Payload = d.r.payload(n)
	}
	return nil
}
