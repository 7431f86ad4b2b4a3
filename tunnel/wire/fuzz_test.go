package wire

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
)

// FuzzUnmarshal decodes arbitrary bytes, split at arbitrary points, and wants
// what protobuf's own decoder says, every buffer back, and the same once more
// after encoding.
func FuzzUnmarshal(f *testing.F) {
	for _, g := range golden() {
		bufs, err := Marshal(&g.p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bufs.Materialize(), uint16(1), uint16(3))
		f.Add(append(bufs.Materialize(), bufs.Materialize()...), uint16(0), uint16(7))
	}
	large, err := Marshal(&Packet{Type: Data, ConnectionID: 1, Payload: PayloadBytes(pattern(5000))})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(large.Materialize(), uint16(5), uint16(3000))
	f.Add([]byte("\x08\x02\x7b\x08\x03\x7b\x12\x02AB\x7c\x7c\x2a\x02\x08\x07"), uint16(4), uint16(4))
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, b []byte, cut1, cut2 uint16) {
		pool := newPool(t)
		in := pool.split(b, int(cut1), int(cut2))
		var p Packet
		err := Unmarshal(in, &p)
		in.Free()
		want, oracleErr := o.decode(b)
		switch {
		case errors.Is(err, errDepth): // protobuf allows deeper ones
			return
		case (err == nil) != (oracleErr == nil):
			t.Fatalf("error %v, the oracle says %v", err, oracleErr)
		case !same(p, want):
			t.Fatalf("got %+v, the oracle says %+v", p, want)
		case err != nil:
			return
		}
		if !p.Mismatched {
			checkRoundTrip(t, o, p)
		}
		p.Payload.Free()
	})
}

// checkRoundTrip encodes p, which must already be as a decoder leaves it, and
// wants it back from our decoder and from the oracle. p keeps its payload.
func checkRoundTrip(t *testing.T, o *oracle, p Packet) {
	t.Helper()
	out, err := Marshal(&p)
	if err != nil {
		if errors.Is(err, ErrTooLarge) && p.Payload.Len() > MaxMessage-maxError-100 {
			return
		}
		t.Fatal(err)
	}
	defer out.Free()
	var again Packet
	if err := Unmarshal(out, &again); err != nil {
		t.Fatal(err)
	}
	defer again.Payload.Free()
	if !same(again, p) {
		t.Fatalf("encoded %+v, decoded %+v", p, again)
	}
	if want, err := o.decode(out.Materialize()); err != nil || !same(want, p) {
		t.Fatalf("encoded %+v, the oracle decodes %+v, %v", p, want, err)
	}
}

// FuzzRoundTrip encodes arbitrary packets of every type.
func FuzzRoundTrip(f *testing.F) {
	f.Add(int32(0), int64(1), int64(2), "tcp", "host:1", "", []byte(nil), int64(262144), true, uint32(0), uint64(0))
	f.Add(int32(1), int64(math.MaxInt64), int64(math.MinInt64), "", "", "refused\xff", []byte(nil), int64(-1), false, uint32(3), uint64(0))
	f.Add(int32(4), int64(1), int64(0), "", "", "", pattern(3000), int64(0), false, uint32(0), uint64(0))
	for _, g := range golden() {
		f.Add(int32(g.p.Type), int64(g.p.ConnectionID), int64(g.p.DialID), g.p.Protocol, g.p.Address, g.p.Error,
			g.p.Payload.Bytes(), g.p.Window, g.p.CanHalfClose, uint32(g.p.Reason), g.p.Nonce)
	}
	o := newOracle(f)
	f.Fuzz(func(t *testing.T, typ int32, conn, dial int64, protocol, address, text string, data []byte, window int64, half bool, reason uint32, nonce uint64) {
		full := Packet{
			Type: PacketType(typ), ConnectionID: ConnectionID(conn), DialID: DialID(dial),
			Protocol: protocol, Address: address, Error: text, Payload: PayloadBytes(data),
			Window: window, CanHalfClose: half, Reason: Reason(reason), Nonce: nonce, Count: window,
		}
		out, err := Marshal(&full)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		if err := Unmarshal(mem.BufferSlice{mem.SliceBuffer(out.Materialize())}, &p); err != nil {
			t.Fatal(err)
		}
		if p.Mismatched || p.Type != full.Type {
			t.Fatalf("encoded %+v, decoded %+v", full, p)
		}
		if strings.ToValidUTF8(p.Error, "") != p.Error || len(p.Error) > maxError || len(p.Address) > maxAddress || len(p.Protocol) > maxProtocol {
			t.Fatalf("a text that is not as promised: %+v", p)
		}
		checkRoundTrip(t, o, p)
	})
}

// FuzzTexts reads what comes as text from peers.
func FuzzTexts(f *testing.F) {
	f.Add("dial tcp 127.0.0.1:1: connect: connection refused")
	f.Add("credit,half-close,reason,ping,ready,server-count,drain")
	f.Fuzz(func(t *testing.T, s string) {
		if r := ClassifyDialText(s); r.word() == "" || r == ReasonNone {
			t.Errorf("%q is %v", s, r)
		}
		e := ParseExtensions(s)
		if ParseExtensions(e.String()) != e {
			t.Errorf("%q gives %q, which gives %q", s, e, ParseExtensions(e.String()))
		}
		if c := clean(s, 10); len(c) > 10 || clean(c, 10) != c {
			t.Errorf("%q is cleaned to %q", s, c)
		}
	})
}
