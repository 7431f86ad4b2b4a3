package link

import (
	"math/bits"
	"sync"

	"google.golang.org/grpc/mem"
)

// Buffers is a pool of buffers for gRPC that does not clear them: gRPC's own
// does, each time, although every byte is overwritten at once. Give one to
// experimental.WithBufferPool or experimental.BufferPool. The zero value is
// ready. Safe for concurrent use.
type Buffers struct {
	// One pool per size: 256 bytes, 4 KiB, 16 KiB (a frame), 32 KiB (a DATA), 1 MiB.
	pools [5]sync.Pool
}

var _ mem.BufferPool = (*Buffers)(nil)

// tier is the index of the smallest size that holds n bytes, and that size; no
// index for more than all.
func tier(n int) (i, size int) {
	switch log := bits.Len(uint(max(n-1, 0))); {
	case log <= 8:
		return 0, 1 << 8
	case log <= 12:
		return 1, 1 << 12
	case log <= 14:
		return 2, 1 << 14
	case log <= 15:
		return 3, 1 << 15
	case log <= 20:
		return 4, 1 << 20
	}
	return -1, n
}

// Get implements mem.BufferPool.
func (p *Buffers) Get(length int) *[]byte {
	i, size := tier(length)
	if i >= 0 {
		if b, ok := p.pools[i].Get().(*[]byte); ok {
			*b = (*b)[:length]
			return b
		}
	}
	b := make([]byte, length, size)
	return &b
}

// Put implements mem.BufferPool. A buffer that is not from a pool is left to the
// garbage collector.
func (p *Buffers) Put(b *[]byte) {
	if i, size := tier(cap(*b)); i >= 0 && size == cap(*b) {
		p.pools[i].Put(b)
	}
}
