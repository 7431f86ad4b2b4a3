package oldpeers

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// endpointAddress is what clients dial.
const endpointAddress = "node:80"

// The packets of the plain protocol.

func dialReq(random wire.DialID) wire.Packet {
	return wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: endpointAddress, DialID: random}
}

func dialRsp(random wire.DialID, id wire.ConnectionID) wire.Packet {
	return wire.Packet{Type: wire.DialResponse, DialID: random, ConnectionID: id}
}

func dialErr(random wire.DialID, text string) wire.Packet {
	return wire.Packet{Type: wire.DialResponse, DialID: random, Error: text}
}

func dialCls(random wire.DialID) wire.Packet {
	return wire.Packet{Type: wire.DialClose, DialID: random}
}

func data(id wire.ConnectionID, text string) wire.Packet {
	return wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes([]byte(text))}
}

func closeReq(id wire.ConnectionID) wire.Packet {
	return wire.Packet{Type: wire.CloseRequest, ConnectionID: id}
}

func closeRsp(id wire.ConnectionID, text string) wire.Packet {
	return wire.Packet{Type: wire.CloseResponse, ConnectionID: id, Error: text}
}

func drain() wire.Packet { return wire.Packet{Type: wire.Drain} }

// mismatched are messages that do not carry what their type says. The reference
// implementation crashes on them. COMPAT 1.2.
func mismatched() map[string][]byte {
	return map[string][]byte{
		"empty":                       {},
		"DIAL_RSP without payload":    {0x08, 0x01},
		"CLOSE_REQ without payload":   {0x08, 0x02},
		"CLOSE_RSP without payload":   {0x08, 0x03},
		"DATA without payload":        {0x08, 0x04},
		"DIAL_CLS without payload":    {0x08, 0x05},
		"DIAL_REQ with a CLOSE_REQ":   {0x2a, 0x02, 0x08, 0x01},
		"DATA with a CLOSE_RSP":       {0x08, 0x04, 0x32, 0x02, 0x10, 0x01},
		"CLOSE_REQ with a DATA":       {0x08, 0x02, 0x22, 0x02, 0x08, 0x01},
		"DRAIN that has its payload":  {0x08, 0x06, 0x42, 0x00},
		"DRAIN without payload":       {0x08, 0x06},
		"unknown type with a payload": {0x08, 0x63, 0x22, 0x02, 0x08, 0x01},
	}
}

// unknown are packets of a type that nobody knows, and of our own types, which
// nobody may send who has not agreed to them.
func unknown(id wire.ConnectionID) []wire.Packet {
	return []wire.Packet{
		{Type: wire.Credit, ConnectionID: id, Window: 1 << 20},
		{Type: wire.HalfClose, ConnectionID: id},
		{Type: wire.Ping, Nonce: 7},
		{Type: wire.Pong, Nonce: 7},
		{Type: wire.Ready},
		{Type: wire.ServerCount, Count: 9},
	}
}

// rawData is a DATA packet that our own codec would not write, because it is too
// long or has an error in it.
func rawData(id wire.ConnectionID, b []byte, more ...byte) []byte {
	inner := protowire.AppendTag(nil, 1, protowire.VarintType)
	inner = protowire.AppendVarint(inner, uint64(id))
	inner = append(inner, more...)
	inner = protowire.AppendTag(inner, 3, protowire.BytesType)
	inner = protowire.AppendBytes(inner, b)
	packet := protowire.AppendTag(nil, 1, protowire.VarintType)
	packet = protowire.AppendVarint(packet, uint64(wire.Data))
	packet = protowire.AppendTag(packet, 4, protowire.BytesType)
	return protowire.AppendBytes(packet, inner)
}

// type99 is a packet of type 99 with nothing in it.
func type99() []byte { return []byte{0x08, 0x63} }

// expect checks that the next packets are exactly these.
func expect(t *testing.T, p *tunneltest.Peer, want ...wire.Packet) {
	t.Helper()
	for _, w := range want {
		if got := line(p.Next()); got != line(w) {
			t.Fatalf("got  %s\nwant %s", got, line(w))
		}
	}
}

// line is everything that is in a packet.
func line(p wire.Packet) string {
	text := p.Type.String()
	if p.Payload.Len() > 0 {
		text += fmt.Sprintf(" %q", p.Payload.Bytes())
	}
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Type" && name != "Payload" && !v.Field(i).IsZero() {
			text += fmt.Sprintf(" %s=%v", name, v.Field(i))
		}
	}
	return text
}

// wantEOF checks that the stream ends in order, with nothing before it.
func wantEOF(t *testing.T, p *tunneltest.Peer) {
	t.Helper()
	if err := p.ExpectEnd(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want its orderly end", err)
	}
}

// wantStatus checks that the stream ends with a status, with nothing before it.
func wantStatus(t *testing.T, p *tunneltest.Peer, code codes.Code) {
	t.Helper()
	if err := p.ExpectEnd(); status.Code(err) != code {
		t.Errorf("the stream ended with %v, want %s", err, code)
	}
}

// families are a process's metrics.
func families(t *testing.T, from prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	all, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// number sums the series of a counter or gauge that have these labels and values.
func number(t *testing.T, from prometheus.Gatherer, name string, labels ...string) int {
	t.Helper()
	sum, found := 0.0, false
	for _, f := range families(t, from) {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && has(m, labels) {
				found = true
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	if !found {
		t.Fatalf("there is no series %s%v", name, labels)
	}
	return int(sum)
}

func has(m *dto.Metric, labels []string) bool {
	found := 0
	for i := 0; i < len(labels); i += 2 {
		for _, l := range m.GetLabel() {
			if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
				found++
			}
		}
	}
	return 2*found == len(labels)
}

// wantIdle checks that every gauge that counts something open is 0.
func wantIdle(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	for _, f := range families(t, from) {
		name := f.GetName()
		known := strings.HasPrefix(name, "konnectivity_") || strings.HasPrefix(name, "culvert_")
		if f.GetType() != dto.MetricType_GAUGE || !known || strings.HasSuffix(name, "_limit_bytes") ||
			strings.HasSuffix(name, "known_servers") || strings.HasSuffix(name, "known_server_count") {
			continue
		}
		for _, m := range f.GetMetric() {
			if v := m.GetGauge().GetValue(); v != 0 {
				t.Errorf("at the end %s%v is %v", name, m.GetLabel(), v)
			}
		}
	}
}
