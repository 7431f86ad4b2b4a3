package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestUnmarshalOddPackets(t *testing.T) {
	long := strings.Repeat("x", 127)
	for _, c := range []struct {
		name, hex string
		want      Packet
	}{
		{"nothing at all", "", Packet{Mismatched: true}},
		{"type without message", "0804", Packet{Type: Data, Mismatched: true}},
		{"another message", "0804 2a02 0807", Packet{Type: Data, Mismatched: true}},
		{"a payload under another type", "0802 2205 1a03616263", Packet{Type: CloseRequest, Mismatched: true}},
		{"unknown type with a message", "0863 2209 0807 1a0568656c6c6f", Packet{Type: 99}},
		{"negative type", "08ffffffffffffffffff01", Packet{Type: -1}},
		{"type after the message", "2a02 0807 0802", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"last type wins", "0804 2a02 0807 0802", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"last message wins", "0802 2205 1a03616263 2a02 0807", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"the last is another", "0804 2205 1a03616263 2a02 0807", Packet{Type: Data, Mismatched: true}},
		{"the same message merges", "0801 1a02 1007 1a02 1803 1a03 0a0178", Packet{Type: DialResponse, ConnectionID: 7, DialID: 3, Error: "x"}},
		{"the last payload wins", "0804 220a 1a03616263 1a03646566 2202 0807", Packet{Type: Data, ConnectionID: 7, Payload: PayloadBytes([]byte("def"))}},
		{"an empty payload wins too", "0804 2209 0807 1a03616263 1a00", Packet{Type: Data, ConnectionID: 7}},
		{"unknown fields", "0802 7a03616263 2a13 0807 1a01ff 2101020304050607082d01020304 f80701", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"unknown group", "0802 7b 0803 7b 12024142 7c 7c 2a02 0807", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"known field, other wire type", "0802 0a0141 2a05 0807 0a0141", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"message as a varint", "0802 2a02 0807 2801", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"padded varints", "088200 2a04 08878000", Packet{Type: CloseRequest, ConnectionID: 7}},
		{"bad UTF-8", "0801 1a04 0a0261ff", Packet{Type: DialResponse, Error: "a?"}},
		{"long protocol", "1281010a7f" + hex.EncodeToString([]byte(long)), Packet{Protocol: long[:maxProtocol]}},
		{"unknown reason", "0802 2a06 0807 8004d86d", Packet{Type: CloseRequest, ConnectionID: 7, Reason: ReasonOther}},
		{"huge reason", "0802 2a10 0807 8004ffffffffffffffffff01 0807", Packet{Type: CloseRequest, ConnectionID: 7, Reason: ReasonOther}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := unhex(t, c.hex)
			for at := 0; at <= len(b); at++ {
				pool := newPool(t)
				in := pool.split(b, at)
				p := Packet{Type: 77, Error: "old", Payload: PayloadBytes([]byte("old"))}
				if err := Unmarshal(in, &p); err != nil {
					t.Fatalf("split at %d: %v", at, err)
				}
				in.Free()
				if !same(p, c.want) {
					t.Fatalf("split at %d:\n got %+v\nwant %+v", at, p, c.want)
				}
				p.Payload.Free()
				pool.check(t)
			}
		})
	}
}

func TestUnmarshalMalformed(t *testing.T) {
	for _, c := range []struct{ name, hex, says string }{
		{"lone tag", "08", "packet.type"},
		{"endless varint", "08ffffffffffffffffffff01", "packet.type: varint"},
		{"tag cut", "80", "packet: unexpected EOF"},
		{"field number 0", "0001", "packet: field number"},
		{"field number too large", "f8ffffff7f01", "packet: field number"},
		{"message longer than the packet", "22ff01 0807", "data: unexpected EOF"},
		{"length over int64", "22ffffffffffffffffff01", "data: unexpected EOF"},
		{"payload longer than its message", "0804 2205 0807 1a0561", "data.data: unexpected EOF"},
		{"varint over the end of its message", "0804 2202 0887 07", "data.connectID: unexpected EOF"},
		{"address cut", "1204 1205 6161", "dialRequest.address: unexpected EOF"},
		{"error cut", "1a03 0a0561", "dialResponse.error: unexpected EOF"},
		{"unknown field cut", "7a05 61", "packet field 15: unexpected EOF"},
		{"fixed64 cut", "2a04 79 010203", "closeRequest field 15: unexpected EOF"},
		{"group without end", "7b 0803", "packet field 15: unexpected EOF"},
		{"group ends wrongly", "7b 0803 74", "packet field 15: groups"},
		{"end without group", "7c", "packet field 15: groups"},
		{"wire type 6", "7e", "packet field 15: reserved"},
		{"deep groups", strings.Repeat("7b", 101), "packet field 15: groups nested"},
		{"after a payload", "0804 2207 0807 1a03616263 22", "data: unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := unhex(t, c.hex)
			for at := 0; at <= len(b); at++ {
				pool := newPool(t)
				in := pool.split(b, at)
				p := Packet{Type: 77, ConnectionID: 5}
				err := Unmarshal(in, &p)
				if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("split at %d: %v, want %q", at, err, c.says)
				}
				in.Free()
				pool.check(t)
				if !same(p, Packet{}) {
					t.Fatalf("the packet is not empty: %+v", p)
				}
			}
		})
	}
}

// TestUnmarshalLargeDataIsNotCopied: 4 MiB in frames of 16 KiB, cut at the worst
// places, keep their buffers.
func TestUnmarshalLargeDataIsNotCopied(t *testing.T) {
	pool := newPool(t)
	want := pattern(MaxMessage - 32)
	out, err := Marshal(&Packet{Type: Data, ConnectionID: 1 << 40, Payload: PayloadBytes(want)})
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int{3, 1, 0, 2, 4}
	for range 255 {
		cuts = append(cuts, 16<<10)
	}
	in := pool.split(out.Materialize(), cuts...)
	var p Packet
	if err := Unmarshal(in, &p); err != nil {
		t.Fatal(err)
	}
	in.Free()
	if p.ConnectionID != 1<<40 || !bytes.Equal(p.Payload.Bytes(), want) {
		t.Error("the data differ")
	}
	for _, b := range p.Payload.bufs {
		if !pool.out[&b.ReadOnlyData()[0]] {
			t.Error("a buffer that is not one of those given")
		}
	}
	p.Payload.Free()
}

// TestUnmarshalKeepsNoLargeBufferForLittle: what is small, or in small pieces,
// is copied.
func TestUnmarshalKeepsNoLargeBufferForLittle(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		cuts []int
		kept bool
	}{
		{"one byte", 1, nil, false},
		{"1000 bytes", 1000, nil, false},
		{"2000 bytes", 2000, nil, true},
		{"2000 bytes in three", 2000, []int{8, 700, 700}, false},
		{"8000 bytes in three", 8000, []int{1000, 1000}, true},
	} {
		pool := newPool(t)
		want := pattern(c.n)
		out, err := Marshal(&Packet{Type: Data, ConnectionID: 1, Payload: PayloadBytes(want)})
		if err != nil {
			t.Fatal(err)
		}
		in := pool.split(out.Materialize(), c.cuts...)
		var p Packet
		if err := Unmarshal(in, &p); err != nil {
			t.Fatal(err)
		}
		in.Free()
		if kept := len(pool.out) > 0; kept != c.kept {
			t.Errorf("%s: kept the buffers: %v", c.name, kept)
		}
		if !bytes.Equal(p.Payload.Bytes(), want) {
			t.Errorf("%s: the data differ", c.name)
		}
		p.Payload.Free()
	}
}

func TestMarshalTakesNoReference(t *testing.T) {
	pool := newPool(t)
	want := pattern(9000)
	p := Packet{Type: Data, ConnectionID: 1, Payload: PayloadOf(pool.split(want, 3000, 3000))}
	for range 3 { // it can be encoded again
		out, err := Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(out.Materialize(), want) {
			t.Error("the data differ")
		}
		out.Free()
	}
	out, err := Marshal(&p)
	if err != nil {
		t.Fatal(err)
	}
	p.Payload.Free() // the result is good without the packet
	if !bytes.HasSuffix(out.Materialize(), want) {
		t.Error("the data differ")
	}
	out.Free()
}

func TestMarshalLimits(t *testing.T) {
	p := Packet{Type: Data, ConnectionID: 1, Payload: PayloadBytes(make([]byte, MaxMessage))}
	if out, err := Marshal(&p); !errors.Is(err, ErrTooLarge) || out != nil {
		t.Errorf("got %v", err)
	}
	p.Payload.Split(14) // what stands before the payload
	out, err := Marshal(&p)
	if err != nil || out.Len() != MaxMessage {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	long := "\xff" + strings.Repeat("é", 5000)
	out, err = Marshal(&Packet{Type: DialResponse, Error: long})
	if err != nil {
		t.Fatal(err)
	}
	var back Packet
	if err := Unmarshal(out, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Error) > maxError || len(back.Error) < maxError-1 || !strings.HasPrefix(back.Error, "?éé") {
		t.Errorf("%d bytes: %.10q", len(back.Error), back.Error)
	}
	if _, err := newOracle(t).decode(out.Materialize()); err != nil {
		t.Error(err)
	}
}
