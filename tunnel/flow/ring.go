package flow

// ring is a circular buffer that grows. An idle one holds little memory.
type ring[T any] struct {
	buf   []T // its length is zero or a power of two
	head  int
	count int
}

// idleRing is the most slots that an empty ring keeps.
const idleRing = 8

func (r *ring[T]) push(x T) {
	if r.count == len(r.buf) {
		buf := make([]T, max(2, 2*len(r.buf)))
		n := copy(buf, r.buf[r.head:])
		copy(buf[n:], r.buf[:r.head])
		r.buf, r.head = buf, 0
	}
	r.buf[(r.head+r.count)&(len(r.buf)-1)] = x
	r.count++
}

// pop removes the first item. There is one.
func (r *ring[T]) pop() T {
	var none T
	x := r.buf[r.head]
	r.buf[r.head] = none
	r.head = (r.head + 1) & (len(r.buf) - 1)
	if r.count--; r.count == 0 && len(r.buf) > idleRing {
		r.buf, r.head = nil, 0
	}
	return x
}

// last is the item pushed last, nil if there is none.
func (r *ring[T]) last() *T {
	if r.count == 0 {
		return nil
	}
	return &r.buf[(r.head+r.count-1)&(len(r.buf)-1)]
}
