package wire

import (
	"sync"
	"testing"

	"google.golang.org/grpc/mem"
)

// countingPool hands out buffers and knows which of them are out. A buffer that
// comes back is overwritten, so that whoever still reads it reads rubbish.
type countingPool struct {
	mu   sync.Mutex
	out  map[*byte]bool
	gets int
}

func newPool(t testing.TB) *countingPool {
	p := &countingPool{out: map[*byte]bool{}}
	t.Cleanup(func() { p.check(t) })
	return p
}

// check fails if a buffer has not come back.
func (p *countingPool) check(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.out) > 0 {
		t.Errorf("%d of %d buffers were never freed", len(p.out), p.gets)
	}
}

func (p *countingPool) Get(n int) *[]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := make([]byte, n, max(n, 2048)) // gRPC does not count references to small ones
	p.out[&b[:1][0]] = true
	p.gets++
	return &b
}

func (p *countingPool) Put(b *[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole := (*b)[:cap(*b)]
	if !p.out[&whole[0]] {
		panic("buffer given back twice, or not from its start")
	}
	delete(p.out, &whole[0])
	for i := range whole {
		whole[i] = 0xdd
	}
}

// buffer is a counted buffer that holds b.
func (p *countingPool) buffer(b []byte) mem.Buffer {
	m := p.Get(len(b))
	copy(*m, b)
	return mem.NewBuffer(m, p)
}

// split puts data into counted buffers that end at the places cuts gives, each
// modulo what is left: 0 makes an empty buffer.
func (p *countingPool) split(data []byte, cuts ...int) mem.BufferSlice {
	var bufs mem.BufferSlice
	for _, c := range cuts {
		n := c % (len(data) + 1)
		bufs = append(bufs, p.buffer(data[:n]))
		data = data[n:]
	}
	return append(bufs, p.buffer(data))
}
