package client

import (
	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// ring is a first-in first-out queue that keeps little memory when it is empty.
// Guarded by the connection's mu.
type ring[T any] struct {
	items []T
	first int
}

// ringKeep is how many items' room an empty ring keeps.
const ringKeep = 4

// last is the item that was pushed last, nil if there is none.
func (r *ring[T]) last() *T {
	if r.first == len(r.items) {
		return nil
	}
	return &r.items[len(r.items)-1]
}

func (r *ring[T]) push(x T) {
	if r.first > 0 && len(r.items) == cap(r.items) {
		n := copy(r.items, r.items[r.first:])
		clear(r.items[n:])
		r.items, r.first = r.items[:n], 0
	}
	r.items = append(r.items, x)
}

// pop removes the first item. There is one.
func (r *ring[T]) pop() T {
	var none T
	x := r.items[r.first]
	r.items[r.first] = none
	r.first++
	if r.first == len(r.items) {
		r.items, r.first = r.items[:0], 0
		if cap(r.items) > ringKeep {
			r.items = nil
		}
	}
	return x
}

// recvQueue holds what has arrived and was not read.
type recvQueue struct {
	ring  ring[wire.Payload]
	bytes int
}

// push takes ownership of p, which is not empty. Small payloads that wait are
// put together, so that the number of bytes bounds what they cost.
func (q *recvQueue) push(p wire.Payload) {
	q.bytes += p.Len()
	if last := q.ring.last(); last != nil {
		if merged, ok := last.Merge(p); ok {
			*last = merged
			return
		}
	}
	q.ring.push(p)
}

// read moves as much as there is and fits into b.
func (q *recvQueue) read(b []byte) int {
	n := 0
	for n < len(b) && n < q.bytes {
		p := &q.ring.items[q.ring.first]
		k := p.CopyTo(b[n:])
		n += k
		if k < p.Len() {
			head := p.Split(k)
			head.Free()
			break
		}
		head := q.ring.pop()
		head.Free()
	}
	q.bytes -= n
	return n
}

// drop frees everything.
func (q *recvQueue) drop() {
	for q.ring.last() != nil {
		p := q.ring.pop()
		p.Free()
	}
	*q = recvQueue{}
}

// chunk is what becomes one DATA packet: a buffer of gRPC's pool whose length is
// that of the data.
type chunk = *[]byte

// minChunk is the least capacity of a chunk, in bytes. It leaves room for more
// small writes, and is large enough for gRPC to tell when it is done with it.
const minChunk = 4 << 10

// sendQueue holds what was written and was not given to gRPC.
type sendQueue struct {
	ring  ring[chunk]
	bytes int
}

// write queues a copy of the beginning of b, as much as there is room for, and
// returns how much that is.
func (q *sendQueue) write(b []byte) int {
	b = b[:max(0, min(len(b), maxWritten-q.bytes))]
	n := 0
	if last := q.ring.last(); last != nil {
		n = appendTo(*last, b)
	}
	for n < len(b) {
		size := min(len(b)-n, link.MaxData)
		x := mem.DefaultBufferPool().Get(max(size, minChunk))
		*x = (*x)[:0]
		n += appendTo(x, b[n:n+size])
		q.ring.push(x)
	}
	q.bytes += n
	return n
}

// appendTo fills x with the beginning of b, as far as it has room.
func appendTo(x chunk, b []byte) int {
	old := len(*x)
	*x = (*x)[:min(cap(*x), link.MaxData, old+len(b))]
	return copy((*x)[old:], b)
}

// pop removes the first chunk. There is one.
func (q *sendQueue) pop() chunk {
	x := q.ring.pop()
	q.bytes -= len(*x)
	return x
}

// drop frees everything.
func (q *sendQueue) drop() {
	for q.ring.last() != nil {
		mem.DefaultBufferPool().Put(q.ring.pop())
	}
	*q = sendQueue{}
}
