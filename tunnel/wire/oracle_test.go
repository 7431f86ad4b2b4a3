package wire

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// oracle is a protobuf decoder and encoder made at run time from the message
// definitions below, which stand here a second time on purpose: from COMPAT 1.2
// and PROTOCOL.md, not from the codec. It is registered nowhere. Strings are
// declared as bytes (the same on the wire), because our decoder mends what is
// not UTF-8 while protobuf's refuses it.
type oracle struct {
	packet protoreflect.MessageDescriptor
}

const (
	tInt   = descriptorpb.FieldDescriptorProto_TYPE_INT64
	tUint  = descriptorpb.FieldDescriptorProto_TYPE_UINT64
	tU32   = descriptorpb.FieldDescriptorProto_TYPE_UINT32
	tBool  = descriptorpb.FieldDescriptorProto_TYPE_BOOL
	tBytes = descriptorpb.FieldDescriptorProto_TYPE_BYTES
	tMsg   = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE
)

type fieldDef struct {
	name string
	num  int32
	typ  descriptorpb.FieldDescriptorProto_Type
}

type messageDef struct {
	oneof  string
	num    int32
	fields []fieldDef
}

func messages() []messageDef {
	return []messageDef{
		{"dialRequest", 2, []fieldDef{{"protocol", 1, tBytes}, {"address", 2, tBytes}, {"random", 3, tInt}, {"window", 64, tInt}, {"can_half_close", 65, tBool}}},
		{"dialResponse", 3, []fieldDef{{"error", 1, tBytes}, {"connectID", 2, tInt}, {"random", 3, tInt}, {"window", 64, tInt}, {"reason", 65, tU32}}},
		{"data", 4, []fieldDef{{"connectID", 1, tInt}, {"error", 2, tBytes}, {"data", 3, tBytes}}},
		{"closeRequest", 5, []fieldDef{{"connectID", 1, tInt}, {"reason", 64, tU32}}},
		{"closeResponse", 6, []fieldDef{{"error", 1, tBytes}, {"connectID", 2, tInt}, {"reason", 64, tU32}}},
		{"closeDial", 7, []fieldDef{{"random", 1, tInt}}},
		{"drain", 8, nil},
		{"credit", 64, []fieldDef{{"connectID", 1, tInt}, {"bytes", 2, tInt}}},
		{"halfClose", 65, []fieldDef{{"connectID", 1, tInt}}},
		{"ping", 66, []fieldDef{{"nonce", 1, tUint}}},
		{"pong", 67, []fieldDef{{"nonce", 1, tUint}}},
		{"ready", 68, nil},
		{"serverCount", 69, []fieldDef{{"count", 1, tInt}}},
	}
}

func newOracle(t testing.TB) *oracle {
	t.Helper()
	optional := descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
	packet := &descriptorpb.DescriptorProto{
		Name:      proto.String("Packet"),
		OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: proto.String("payload")}},
		Field: []*descriptorpb.FieldDescriptorProto{{
			Name: proto.String("type"), Number: proto.Int32(1), Label: optional,
			Type: descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum(), // as an open enum on the wire
		}},
	}
	file := &descriptorpb.FileDescriptorProto{Name: proto.String("oracle.proto"), Syntax: proto.String("proto3")}
	for _, m := range messages() {
		msg := &descriptorpb.DescriptorProto{Name: proto.String("M" + m.oneof)}
		for _, f := range m.fields {
			msg.Field = append(msg.Field, &descriptorpb.FieldDescriptorProto{
				Name: proto.String(f.name), Number: proto.Int32(f.num), Type: f.typ.Enum(), Label: optional,
			})
		}
		file.MessageType = append(file.MessageType, msg)
		packet.Field = append(packet.Field, &descriptorpb.FieldDescriptorProto{
			Name: proto.String(m.oneof), Number: proto.Int32(m.num), Label: optional, Type: tMsg.Enum(),
			TypeName: proto.String(".M" + m.oneof), OneofIndex: proto.Int32(0),
		})
	}
	file.MessageType = append(file.MessageType, packet)
	fd, err := protodesc.NewFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &oracle{packet: fd.Messages().ByName("Packet")}
}

// decode is what Unmarshal must make of b, or the oracle's error.
func (o *oracle) decode(b []byte) (Packet, error) {
	msg := dynamicpb.NewMessage(o.packet)
	if err := proto.Unmarshal(b, msg); err != nil {
		return Packet{}, err
	}
	p := Packet{Type: PacketType(msg.Get(o.packet.Fields().ByName("type")).Int())}
	want := wantName(p.Type)
	if want == "" {
		return p, nil
	}
	set := msg.WhichOneof(o.packet.Oneofs().ByName("payload"))
	if set == nil || string(set.Name()) != want {
		p.Mismatched = true
		return p, nil
	}
	msg.Get(set).Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		setField(&p, string(f.Name()), v)
		return true
	})
	return p, nil
}

func wantName(t PacketType) string {
	switch t {
	case DialRequest:
		return "dialRequest"
	case DialResponse:
		return "dialResponse"
	case CloseRequest:
		return "closeRequest"
	case CloseResponse:
		return "closeResponse"
	case Data:
		return "data"
	case DialClose:
		return "closeDial"
	case Drain:
		return "drain"
	}
	for _, m := range messages() {
		if m.num >= 64 && m.num == int32(t) {
			return m.oneof
		}
	}
	return ""
}

func setField(p *Packet, name string, v protoreflect.Value) {
	switch name {
	case "random":
		p.DialID = DialID(v.Int())
	case "connectID":
		p.ConnectionID = ConnectionID(v.Int())
	case "protocol":
		p.Protocol = clean(string(v.Bytes()), maxProtocol)
	case "address":
		p.Address = clean(string(v.Bytes()), maxAddress)
	case "error":
		p.Error = clean(string(v.Bytes()), maxError)
	case "data":
		p.Payload = PayloadBytes(v.Bytes())
	case "window", "bytes":
		p.Window = v.Int()
	case "can_half_close":
		p.CanHalfClose = v.Bool()
	case "reason":
		p.Reason = knownReason(v.Uint())
	case "nonce":
		p.Nonce = v.Uint()
	case "count":
		p.Count = v.Int()
	default:
		panic(fmt.Sprintf("field %q", name))
	}
}

// TestOracleAgreesOnGoldenBytes: decoding and encoding again with protobuf's own
// code gives the golden bytes, so they are what a real peer sends.
func TestOracleAgreesOnGoldenBytes(t *testing.T) {
	o := newOracle(t)
	for _, g := range golden() {
		bufs, err := Marshal(&g.p)
		if err != nil {
			t.Fatal(err)
		}
		b := bufs.Materialize()
		p, err := o.decode(b)
		if err != nil || !same(p, g.p) {
			t.Errorf("%s: the oracle reads %+v, %v", g.name, p, err)
		}
		msg := dynamicpb.NewMessage(o.packet)
		if err := proto.Unmarshal(b, msg); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(msg)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: the oracle writes %x, %v; we write %x", g.name, again, err, b)
		}
	}
}
