package wire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"google.golang.org/grpc/mem"
)

// golden are packets of every type with their exact bytes, written down by hand
// from COMPAT 1.2 and PROTOCOL.md.
func golden() []struct {
	name string
	p    Packet
	hex  string
} {
	return []struct {
		name string
		p    Packet
		hex  string
	}{
		{"DIAL_REQ", Packet{Protocol: "tcp", Address: "a:1", DialID: 300},
			"120d" + "0a03746370" + "1203613a31" + "18ac02"},
		{"DIAL_REQ with credit", Packet{Protocol: "tcp", Address: "a:1", DialID: 1, Window: 262144, CanHalfClose: true},
			"1214" + "0a03746370" + "1203613a31" + "1801" + "8004808010" + "880401"},
		{"DIAL_RSP", Packet{Type: DialResponse, ConnectionID: 7, DialID: 300},
			"0801" + "1a05" + "1007" + "18ac02"},
		{"DIAL_RSP failed", Packet{Type: DialResponse, DialID: 1, Error: "no", Reason: ReasonRefused},
			"0801" + "1a09" + "0a026e6f" + "1801" + "880403"},
		{"DIAL_RSP window", Packet{Type: DialResponse, DialID: 1, ConnectionID: 1, Window: 128},
			"0801" + "1a08" + "1001" + "1801" + "80048001"},
		{"CLOSE_REQ", Packet{Type: CloseRequest, ConnectionID: 7}, "0802" + "2a02" + "0807"},
		{"CLOSE_REQ reason", Packet{Type: CloseRequest, ConnectionID: 7, Reason: ReasonAborted},
			"0802" + "2a05" + "0807" + "800441"},
		{"CLOSE_RSP", Packet{Type: CloseResponse, ConnectionID: 7}, "0803" + "3202" + "1007"},
		{"CLOSE_RSP reason", Packet{Type: CloseResponse, ConnectionID: 7, Error: "no", Reason: ReasonReset},
			"0803" + "3209" + "0a026e6f" + "1007" + "800440"},
		{"DATA", Packet{Type: Data, ConnectionID: 7, Payload: PayloadBytes([]byte("hello"))},
			"0804" + "2209" + "0807" + "1a0568656c6c6f"},
		{"DATA error", Packet{Type: Data, ConnectionID: 7, Error: "no", Payload: PayloadBytes([]byte("hi"))},
			"0804" + "220a" + "0807" + "12026e6f" + "1a026869"},
		{"DATA empty", Packet{Type: Data, ConnectionID: 7}, "0804" + "2202" + "0807"},
		{"DATA zero", Packet{Type: Data}, "0804" + "2200"},
		{"DIAL_CLS", Packet{Type: DialClose, DialID: 300}, "0805" + "3a03" + "08ac02"},
		{"DRAIN", Packet{Type: Drain}, "0806" + "4200"},
		{"CREDIT", Packet{Type: Credit, ConnectionID: 7, Window: 128}, "0840" + "820405" + "0807" + "108001"},
		{"HALF_CLOSE", Packet{Type: HalfClose, ConnectionID: 7}, "0841" + "8a0402" + "0807"},
		{"PING", Packet{Type: Ping, Nonce: 5}, "0842" + "920402" + "0805"},
		{"PONG", Packet{Type: Pong, Nonce: 1 << 63}, "0843" + "9a040b" + "0880808080808080808001"},
		{"READY", Packet{Type: Ready}, "0844" + "a20400"},
		{"SERVER_COUNT", Packet{Type: ServerCount, Count: 3}, "0845" + "aa0402" + "0803"},
		{"unknown", Packet{Type: 99}, "0863"},
		{"negative", Packet{Type: CloseRequest, ConnectionID: -1}, "0802" + "2a0b" + "08ffffffffffffffffff01"},
	}
}

func TestGoldenBytes(t *testing.T) {
	for _, g := range golden() {
		t.Run(g.name, func(t *testing.T) {
			want, err := hex.DecodeString(g.hex)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Marshal(&g.p)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Materialize(), want) {
				t.Errorf("bytes\n got %x\nwant %x", got.Materialize(), want)
			}
			for at := 0; at <= len(want); at++ { // split anywhere
				var p Packet
				in := mem.BufferSlice{mem.SliceBuffer(want[:at]), mem.SliceBuffer(want[at:])}
				if err := Unmarshal(in, &p); err != nil {
					t.Fatalf("split at %d: %v", at, err)
				}
				if !same(p, g.p) {
					t.Fatalf("split at %d:\n got %+v\nwant %+v", at, p, g.p)
				}
			}
		})
	}
}

// same compares packets by what they say.
func same(a, b Packet) bool {
	data := bytes.Equal(a.Payload.Bytes(), b.Payload.Bytes())
	a.Payload, b.Payload = Payload{}, Payload{}
	return data && reflect.DeepEqual(a, b)
}
