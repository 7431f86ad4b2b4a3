package wire

import "google.golang.org/grpc/mem"

// view returns a buffer of its own for bytes from to end (exclusive) of b, with
// a reference of its own. b is not changed, and nothing large is copied.
func view(b mem.Buffer, from, end int) mem.Buffer {
	if from == 0 && end == b.Len() {
		b.Ref()
		return b
	}
	if s, ok := b.(interface {
		Slice(start, end int) mem.Buffer
	}); ok {
		return s.Slice(from, end)
	}
	if s, ok := b.(mem.SliceBuffer); ok {
		return s[from:end]
	}
	// A gRPC too old for Slice. Its SplitUnsafe is no help: it cuts b for
	// everybody who holds it.
	data := b.ReadOnlyData()[from:end]
	if mem.IsBelowBufferPoolingThreshold(cap(data)) {
		return mem.Copy(data, mem.NopBufferPool{})
	}
	b.Ref()
	return mem.NewBuffer(&data, root{b})
}

// root stands for the pool of a view's bytes: giving them back means to free
// the buffer that they are a part of.
type root struct{ buf mem.Buffer }

func (r root) Get(n int) *[]byte { return mem.NopBufferPool{}.Get(n) }
func (r root) Put(*[]byte)       { r.buf.Free() }
