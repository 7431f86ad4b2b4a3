package wire

import "google.golang.org/grpc/mem"

// Payload is the data of one DATA packet: reference-counted buffers that the
// codec splices between a socket and gRPC without copying. The zero value is
// empty. A Payload has one owner at a time; passing it to a function that is
// documented to take ownership ends the caller's use of it. Not safe for
// concurrent use.
type Payload struct {
	bufs mem.BufferSlice
	size int
}

// PayloadOf wraps buffers, taking over one reference to each.
func PayloadOf(bufs mem.BufferSlice) Payload {
	return Payload{bufs: bufs, size: bufs.Len()}
}

// PayloadBytes wraps b without copying it; b must not be changed afterwards.
func PayloadBytes(b []byte) Payload {
	if len(b) == 0 {
		return Payload{}
	}
	return Payload{bufs: mem.BufferSlice{mem.SliceBuffer(b)}, size: len(b)}
}

// CopyPayload copies b into a pooled buffer.
func CopyPayload(b []byte) Payload {
	if len(b) == 0 {
		return Payload{}
	}
	return Payload{bufs: mem.BufferSlice{mem.Copy(b, mem.DefaultBufferPool())}, size: len(b)}
}

// Len is the number of bytes.
func (p Payload) Len() int { return p.size }

// Free gives the buffers back. The payload must not be used afterwards.
func (p Payload) Free() { p.bufs.Free() }

// Buffers returns the buffers themselves; the caller takes over the references
// and the payload must not be used afterwards.
func (p Payload) Buffers() mem.BufferSlice { return p.bufs }

// AppendTo appends the byte slices to dst, for a gathered write (net.Buffers).
// They stay valid until Free.
func (p Payload) AppendTo(dst [][]byte) [][]byte {
	for _, b := range p.bufs {
		if b.Len() > 0 {
			dst = append(dst, b.ReadOnlyData())
		}
	}
	return dst
}

// Bytes returns a copy of the data. It does not free the payload.
func (p Payload) Bytes() []byte {
	return p.bufs.Materialize()
}

// CopyTo copies the data into dst and reports how many bytes it copied.
func (p Payload) CopyTo(dst []byte) int { return p.bufs.CopyTo(dst) }

// Split cuts off the first n bytes (0 < n < Len) and returns them; p keeps the
// rest. Both are owned by the caller and freed apart.
func (p *Payload) Split(n int) Payload {
	if n <= 0 {
		return Payload{}
	}
	if n >= p.size {
		head := *p
		*p = Payload{}
		return head
	}
	head := Payload{size: n}
	p.size -= n
	for i, b := range p.bufs {
		if b.Len() > n {
			var left mem.Buffer
			left, p.bufs[i] = mem.SplitUnsafe(b, n)
			head.bufs = append(append(make(mem.BufferSlice, 0, i+1), p.bufs[:i]...), left)
			p.bufs = p.bufs[i:]
			return head
		}
		n -= b.Len()
		if n == 0 {
			head.bufs = append(make(mem.BufferSlice, 0, i+1), p.bufs[:i+1]...)
			p.bufs = p.bufs[i+1:]
			return head
		}
	}
	return head
}
