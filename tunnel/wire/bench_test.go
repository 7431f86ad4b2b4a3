package wire

import (
	"strconv"
	"testing"

	"google.golang.org/grpc/mem"
)

// pooled is a payload of n bytes as a socket's reader makes it.
func pooled(n int) Payload { return CopyPayload(pattern(n)) }

// frames are the buffers in which gRPC hands over a message of b: one for each
// HTTP/2 frame of 16 KiB.
func frames(b []byte) mem.BufferSlice {
	var bufs mem.BufferSlice
	for len(b) > 0 {
		n := min(len(b), 16<<10)
		bufs = append(bufs, mem.Copy(b[:n], mem.DefaultBufferPool()))
		b = b[n:]
	}
	return bufs
}

func dataPacket(n int) Packet {
	return Packet{Type: Data, ConnectionID: 12345, Payload: pooled(n)}
}

// TestAllocations holds what encoding and decoding DATA may allocate, whatever
// the size: the bench below shows the bytes.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		n                  int
		marshal, unmarshal float64
	}{
		{64, 2, 3}, // a small payload is copied: its bytes, the buffer, the list
		{32 << 10, 2, 1},
		{1 << 20, 2, 1},
	} {
		p := dataPacket(c.n)
		out, err := Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		in := frames(out.Materialize())
		out.Free()
		if got := testing.AllocsPerRun(100, func() {
			out, err := Marshal(&p)
			if err != nil {
				t.Fatal(err)
			}
			out.Free()
		}); got > c.marshal {
			t.Errorf("Marshal of %d bytes: %v allocations, want %v", c.n, got, c.marshal)
		}
		var q Packet
		if got := testing.AllocsPerRun(100, func() {
			if err := Unmarshal(in, &q); err != nil {
				t.Fatal(err)
			}
			q.Payload.Free()
		}); got > c.unmarshal {
			t.Errorf("Unmarshal of %d bytes: %v allocations, want %v", c.n, got, c.unmarshal)
		}
		in.Free()
		p.Payload.Free()
	}
}

func BenchmarkMarshal(b *testing.B) {
	for _, n := range []int{64, 32 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := dataPacket(n)
			b.ReportAllocs()
			for b.Loop() {
				out, err := Marshal(&p)
				if err != nil {
					b.Fatal(err)
				}
				out.Free()
			}
		})
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	for _, n := range []int{64, 32 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := dataPacket(n)
			out, err := Marshal(&p)
			if err != nil {
				b.Fatal(err)
			}
			in := frames(out.Materialize())
			var q Packet
			b.ReportAllocs()
			for b.Loop() {
				if err := Unmarshal(in, &q); err != nil {
					b.Fatal(err)
				}
				q.Payload.Free()
			}
		})
	}
}

// BenchmarkForward decodes and encodes, as a server does with each DATA.
func BenchmarkForward(b *testing.B) {
	for _, n := range []int{64, 32 << 10} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			p := dataPacket(n)
			out, err := Marshal(&p)
			if err != nil {
				b.Fatal(err)
			}
			in := frames(out.Materialize())
			var q Packet
			b.ReportAllocs()
			for b.Loop() {
				if err := Unmarshal(in, &q); err != nil {
					b.Fatal(err)
				}
				again, err := Marshal(&q)
				if err != nil {
					b.Fatal(err)
				}
				q.Payload.Free()
				again.Free()
			}
		})
	}
}
