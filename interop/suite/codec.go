package suite

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// CodecGolden holds bytes that both sides must write and read alike. The hex is
// written down by hand from the protocol's description.
func CodecGolden(t *testing.T) {
	for _, test := range []struct {
		p   wire.Packet
		hex string
	}{
		{wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "node:443", DialID: 300}, "1212 0a03746370 12086e6f64653a343433 18ac02"},
		{wire.Packet{Type: wire.DialResponse, ConnectionID: 1, DialID: 300}, "0801 1a05 1001 18ac02"},
		{wire.Packet{Type: wire.DialResponse, DialID: 1, Error: "no"}, "0801 1a06 0a026e6f 1801"},
		{wire.Packet{Type: wire.CloseRequest, ConnectionID: 1}, "0802 2a02 0801"},
		{wire.Packet{Type: wire.CloseResponse, ConnectionID: 1}, "0803 3202 1001"},
		{wire.Packet{Type: wire.CloseResponse, ConnectionID: 1, Error: "no"}, "0803 3206 0a026e6f 1001"},
		{wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes([]byte("data"))}, "0804 2208 0801 1a0464617461"},
		{wire.Packet{Type: wire.Data, ConnectionID: 1, Error: "no", Payload: wire.PayloadBytes([]byte("d"))}, "0804 2209 0801 12026e6f 1a0164"},
		{wire.Packet{Type: wire.Data, ConnectionID: -1}, "0804 220b 08ffffffffffffffffff01"},
		{wire.Packet{Type: wire.DialClose, DialID: 300}, "0805 3a03 08ac02"},
		{wire.Packet{Type: wire.Drain}, "0806 4200"},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(test.hex, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := ours(t, test.p); !bytes.Equal(got, want) {
			t.Errorf("%v: we write %x, want %x", test.p.Type, got, want)
		}
		if !newLib().knows(test.p.Type) {
			continue
		}
		if got := encode(t, test.p); !bytes.Equal(got, want) {
			t.Errorf("%v: the library writes %x, want %x", test.p.Type, got, want)
		}
		agree(t, want)
	}
}

// CodecDifferential puts random packets through both codecs, in both directions.
func CodecDifferential(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		p := randomPacket(r)
		if !newLib().knows(p.Type) {
			continue
		}
		a, b := ours(t, p), encode(t, p)
		if !bytes.Equal(a, b) {
			t.Fatalf("%+v: we write %x, the library %x", p, a, b)
		}
		agree(t, a)
		b = append(b, encode(t, randomPacketOf(r, p.Type))...) // merged by proto's rules
		agree(t, b)
	}
}

// CodecFuzz decodes arbitrary bytes with both.
func CodecFuzz(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(ours(f, randomPacket(r)))
	}
	for _, typ := range []wire.PacketType{wire.Credit, wire.HalfClose, wire.Ping, wire.Ready, wire.ServerCount} {
		f.Add(ours(f, wire.Packet{Type: typ, ConnectionID: 5, Window: 6, Nonce: 7, Count: 8}))
	}
	f.Add(ours(f, wire.Packet{Type: wire.DialResponse, DialID: 1, Window: 1 << 18, Reason: wire.ReasonReset}))
	f.Fuzz(agree)
}

// agree fails the test unless both read the same in b. They may differ where we
// are meant to: we mend texts that are not UTF-8 and cut long ones, and read
// fields and types that the library does not know.
func agree(t *testing.T, b []byte) {
	t.Helper()
	got, err := read(b)
	defer got.Payload.Free()
	want, oracleErr := decode(b)
	if oracleErr != nil {
		if err == nil && !strings.Contains(oracleErr.Error(), "UTF-8") {
			t.Fatalf("%x: we read %+v, the library %v", b, got, oracleErr)
		}
		return
	}
	if err != nil {
		if _, err := read(knownOnly(t, b)); err == nil {
			return // what is wrong is in something that the library does not know
		}
		t.Fatalf("%x: we read %v, the library %+v", b, err, want)
	}
	if !newLib().knows(want.Type) {
		if got.Type != want.Type {
			t.Fatalf("%x: type %v, the library reads %v", b, got.Type, want.Type)
		}
		return
	}
	same := got.Type == want.Type && got.Mismatched == want.Mismatched &&
		got.DialID == want.DialID && got.ConnectionID == want.ConnectionID &&
		cutOf(got.Protocol, want.Protocol, 32) && cutOf(got.Address, want.Address, 1024) && cutOf(got.Error, want.Error, 4096) &&
		bytes.Equal(got.Payload.Bytes(), want.Payload.Bytes())
	// Our own types may take the place of a plain one in the oneof, which the
	// library cannot see.
	if !same && !(got.Mismatched && !want.Mismatched) {
		t.Fatalf("%x: we read %+v, the library %+v", b, got, want)
	}
}

// cutOf reports whether got is want, cut to limit bytes.
func cutOf(got, want string, limit int) bool {
	if len(want) <= limit {
		return got == want
	}
	return strings.HasPrefix(want, got) && len(got) > limit-4
}

func randomPacket(r *rand.Rand) wire.Packet {
	return randomPacketOf(r, wire.PacketType(r.IntN(int(wire.Drain)+1)))
}

func randomPacketOf(r *rand.Rand, t wire.PacketType) wire.Packet {
	p := wire.Packet{Type: t}
	number := func() int64 { return int64(r.Uint64()) >> r.IntN(64) }
	text := func() string { return strings.Repeat("aé世", r.IntN(20)) }
	switch t {
	case wire.DialRequest:
		p.Protocol, p.Address, p.DialID = []string{"", "tcp", "tcp6"}[r.IntN(3)], text(), wire.DialID(number())
	case wire.DialResponse:
		p.Error, p.ConnectionID, p.DialID = text(), wire.ConnectionID(number()), wire.DialID(number())
	case wire.CloseRequest:
		p.ConnectionID = wire.ConnectionID(number())
	case wire.CloseResponse:
		p.Error, p.ConnectionID = text(), wire.ConnectionID(number())
	case wire.Data:
		b := make([]byte, r.IntN(1<<r.IntN(16)))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		p.ConnectionID, p.Error, p.Payload = wire.ConnectionID(number()), text(), wire.PayloadBytes(b)
	case wire.DialClose:
		p.DialID = wire.DialID(number())
	}
	return p
}
