package wire

import "google.golang.org/grpc/mem"

// smallBuffer is the size below which holding on to a buffer costs more than
// copying it: a few bytes may be all that keeps a 16 KiB HTTP/2 frame alive.
const smallBuffer = 1024

// payload reads n bytes, n <= left, as a payload that refers to the buffers it
// lies in, or as a copy if it is small or lies in small pieces.
func (r *reader) payload(n int) Payload {
	if n == 0 {
		return Payload{}
	}
	r.fill()
	first := r.next - 1
	off := r.at
	count, end := 1, len(r.cur)-off
	for end < n {
		end += r.bufs[first+count].Len()
		count++
	}
	if n/count < smallBuffer {
		return r.copied(n)
	}
	bufs := make(mem.BufferSlice, 0, count)
	for _, b := range r.bufs[first : first+count] {
		if b.Len() > 0 {
			b.Ref()
			bufs = append(bufs, b)
		}
	}
	r.skip(n)
	return Payload{bufs: bufs, off: off, size: n}
}

func (r *reader) copied(n int) Payload {
	pool := mem.DefaultBufferPool()
	if mem.IsBelowBufferPoolingThreshold(n) {
		b := make(mem.SliceBuffer, n)
		r.copy(b)
		return Payload{bufs: mem.BufferSlice{b}, size: n}
	}
	b := pool.Get(n)
	r.copy(*b)
	return Payload{bufs: mem.BufferSlice{mem.NewBuffer(b, pool)}, size: n}
}
