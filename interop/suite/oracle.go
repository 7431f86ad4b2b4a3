package suite

import (
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	public "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// plain are the packet types of the plain protocol and the names of their
// messages in the library's Packet. COMPAT 1.2.
func plain() map[wire.PacketType]protoreflect.Name {
	return map[wire.PacketType]protoreflect.Name{
		wire.DialRequest:   "dialRequest",
		wire.DialResponse:  "dialResponse",
		wire.CloseRequest:  "closeRequest",
		wire.CloseResponse: "closeResponse",
		wire.Data:          "data",
		wire.DialClose:     "closeDial",
		wire.Drain:         "drain", // not in v0.30.3
	}
}

// lib is a packet as the library's types hold it, worked by reflection, because
// the versions differ in what they have.
type lib struct {
	packet protoreflect.Message
}

func newLib() lib { return lib{new(public.Packet).ProtoReflect()} }

// field is the descriptor of a field of m, nil if it has none of that name.
func field(m protoreflect.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	return m.Descriptor().Fields().ByName(name)
}

// knows reports whether this version has the message of packets of type t.
func (l lib) knows(t wire.PacketType) bool {
	name, ok := plain()[t]
	return ok && field(l.packet, name) != nil
}

// encode is p as the library writes it.
func encode(t testing.TB, p wire.Packet) []byte {
	t.Helper()
	l := newLib()
	l.packet.Set(field(l.packet, "type"), protoreflect.ValueOfEnum(protoreflect.EnumNumber(p.Type)))
	m := l.packet.Mutable(field(l.packet, plain()[p.Type])).Message()
	set := func(name protoreflect.Name, v protoreflect.Value) {
		if f := field(m, name); f != nil {
			m.Set(f, v)
		}
	}
	set("protocol", protoreflect.ValueOfString(p.Protocol))
	set("address", protoreflect.ValueOfString(p.Address))
	set("random", protoreflect.ValueOfInt64(int64(p.DialID)))
	set("connectID", protoreflect.ValueOfInt64(int64(p.ConnectionID)))
	set("error", protoreflect.ValueOfString(p.Error))
	set("data", protoreflect.ValueOfBytes(p.Payload.Bytes()))
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(l.packet.Interface())
	if err != nil {
		t.Fatalf("the library cannot write %+v: %v", p, err)
	}
	return b
}

// decode is what the library reads in b, or its error.
func decode(b []byte) (wire.Packet, error) {
	l := newLib()
	if err := proto.Unmarshal(b, l.packet.Interface()); err != nil {
		return wire.Packet{}, err
	}
	p := wire.Packet{Type: wire.PacketType(l.packet.Get(field(l.packet, "type")).Enum())}
	if !l.knows(p.Type) {
		return p, nil
	}
	set := l.packet.WhichOneof(l.packet.Descriptor().Oneofs().ByName("payload"))
	if set == nil || set.Name() != plain()[p.Type] {
		p.Mismatched = true
		return p, nil
	}
	m := l.packet.Get(set).Message()
	get := func(name protoreflect.Name) protoreflect.Value {
		if f := field(m, name); f != nil {
			return m.Get(f)
		}
		return protoreflect.Value{}
	}
	text := func(name protoreflect.Name) string {
		if v := get(name); v.IsValid() {
			return v.String()
		}
		return ""
	}
	number := func(name protoreflect.Name) int64 {
		if v := get(name); v.IsValid() {
			return v.Int()
		}
		return 0
	}
	p.Protocol, p.Address, p.Error = text("protocol"), text("address"), text("error")
	p.DialID, p.ConnectionID = wire.DialID(number("random")), wire.ConnectionID(number("connectID"))
	if v := get("data"); v.IsValid() {
		p.Payload = wire.PayloadBytes(v.Bytes())
	}
	return p, nil
}

// knownOnly is b without what the library does not know.
func knownOnly(t testing.TB, b []byte) []byte {
	t.Helper()
	l := newLib()
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, l.packet.Interface()); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(l.packet.Interface())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ours is p as we write it.
func ours(t testing.TB, p wire.Packet) []byte {
	t.Helper()
	bufs, err := wire.Marshal(&p)
	if err != nil {
		t.Fatalf("we cannot write %+v: %v", p, err)
	}
	defer bufs.Free()
	return bufs.Materialize()
}

// read is what we read in b.
func read(b []byte) (wire.Packet, error) {
	var p wire.Packet
	err := wire.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &p)
	return p, err
}
