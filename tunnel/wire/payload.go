package wire

import (
	"iter"

	"google.golang.org/grpc/mem"
)

// Payload is the data of one DATA packet: reference-counted buffers that the
// codec splices between a socket and gRPC without copying. The zero value is
// empty. A Payload has one owner at a time; passing it to a function that is
// documented to take ownership ends the caller's use of it. Not safe for
// concurrent use, but payloads that share a buffer may be used by different
// goroutines: a buffer is never changed once it is in a payload.
type Payload struct {
	bufs mem.BufferSlice // none of them empty; never written to, Split shares it
	off  int             // bytes of bufs[0] that come before the data
	size int             // bytes of data; bufs may hold more behind them
	// room says that the bytes of the last buffer behind the data are this
	// payload's own, for Merge to fill.
	room bool
}

// PayloadOf wraps buffers, taking over one reference to each.
func PayloadOf(bufs mem.BufferSlice) Payload {
	kept := bufs
	for i, b := range bufs {
		if b.Len() > 0 {
			continue
		}
		kept = append(make(mem.BufferSlice, 0, len(bufs)), bufs[:i]...)
		for _, b := range bufs[i:] {
			if b.Len() > 0 {
				kept = append(kept, b)
			} else {
				b.Free()
			}
		}
		break
	}
	if len(kept) == 0 {
		return Payload{}
	}
	return Payload{bufs: kept, size: kept.Len()}
}

// PayloadBytes wraps b without copying it; b must not be changed afterwards.
func PayloadBytes(b []byte) Payload {
	if len(b) == 0 {
		return Payload{}
	}
	return Payload{bufs: mem.BufferSlice{mem.SliceBuffer(b)}, size: len(b)}
}

// CopyPayload copies b into a buffer of gRPC's pool.
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

// chunks yields the data, buffer by buffer. A chunk is valid until Free.
func (p Payload) chunks() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		off, left := p.off, p.size
		for i, b := range p.bufs {
			data := b.ReadOnlyData()[off:]
			off = 0
			if len(data) > left {
				data = data[:left]
			}
			left -= len(data)
			if !yield(i, data) {
				return
			}
		}
	}
}

// appendRefs appends buffers that hold exactly the data, with a new reference
// to each. The payload keeps its own.
func (p Payload) appendRefs(dst mem.BufferSlice) mem.BufferSlice {
	off := p.off
	for i, data := range p.chunks() {
		dst = append(dst, view(p.bufs[i], off, off+len(data)))
		off = 0
	}
	return dst
}

// Buffers returns buffers that hold exactly the data; the caller takes over the
// references and the payload must not be used afterwards.
func (p Payload) Buffers() mem.BufferSlice {
	if p.off == 0 && p.bufs.Len() == p.size {
		return p.bufs
	}
	out := p.appendRefs(make(mem.BufferSlice, 0, len(p.bufs)))
	p.Free()
	return out
}

// AppendTo appends the byte slices to dst, for a gathered write (net.Buffers).
// They stay valid until Free.
func (p Payload) AppendTo(dst [][]byte) [][]byte {
	for _, data := range p.chunks() {
		dst = append(dst, data)
	}
	return dst
}

// Bytes returns a copy of the data. It does not free the payload.
func (p Payload) Bytes() []byte {
	if p.size == 0 {
		return nil
	}
	b := make([]byte, p.size)
	p.CopyTo(b)
	return b
}

// CopyTo copies the data into dst, as much as fits, and reports how many bytes
// it copied. It does not free the payload.
func (p Payload) CopyTo(dst []byte) int {
	n := 0
	for _, data := range p.chunks() {
		n += copy(dst[n:], data)
		if n == len(dst) {
			break
		}
	}
	return n
}

// Split cuts off the first n bytes and returns them; p keeps the rest. Both are
// owned by the caller and freed apart. For n <= 0 the result is empty, for
// n >= Len it is all and p becomes empty. Nothing is copied.
func (p *Payload) Split(n int) Payload {
	if n <= 0 {
		return Payload{}
	}
	if n >= p.size {
		head := *p
		*p = Payload{}
		return head
	}
	last, end := 0, n+p.off // the buffer that holds byte n-1, and where n is in it
	for end > p.bufs[last].Len() {
		end -= p.bufs[last].Len()
		last++
	}
	head := Payload{bufs: p.bufs[: last+1 : last+1], off: p.off, size: n}
	if end == p.bufs[last].Len() {
		last, end = last+1, 0
	} else {
		p.bufs[last].Ref() // both have a part of it
	}
	p.bufs, p.off, p.size = p.bufs[last:], end, p.size-n
	return head
}
