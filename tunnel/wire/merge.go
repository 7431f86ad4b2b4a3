package wire

import "google.golang.org/grpc/mem"

// mergeSize is the most bytes that Merge puts together. Of a queue whose
// neighbours were all offered to Merge, any two hold more than this together,
// so that the number of items is bounded by the number of bytes.
const mergeSize = 4096

// Merge puts next behind p if both are small, by copying, and reports whether
// it did. If so the caller owns the result in place of both, if not it owns
// both as before. It is for queues: a peer that sends its bytes one by one must
// not cost a buffer for each.
func (p Payload) Merge(next Payload) (Payload, bool) {
	if p.size+next.size > mergeSize {
		return p, false
	}
	if p.size == 0 {
		p.Free()
		return next, true
	}
	if !p.room || p.spare() < next.size {
		buf := make([]byte, mergeSize)
		p.CopyTo(buf)
		p.Free()
		p = Payload{bufs: mem.BufferSlice{mem.SliceBuffer(buf)}, size: p.size, room: true}
	}
	last := p.bufs[len(p.bufs)-1].ReadOnlyData()
	next.CopyTo(last[len(last)-p.spare():])
	p.size += next.size
	next.Free()
	return p, true
}

// spare is how many bytes the last buffer has behind the data.
func (p Payload) spare() int { return p.bufs.Len() - p.off - p.size }
