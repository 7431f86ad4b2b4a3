package tunneltest

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// pair is one connection: two directions under one lock. Direction i carries
// what side i sends; side 0 dialled. Lock order: Network.mu, then pair.mu.
type pair struct {
	// Fixed after construction.
	net      *Network
	names    [2]string
	listener *Listener

	// Guarded by mu.
	mu      sync.Mutex
	changed broadcast
	dirs    [2]direction
	closed  [2]bool // by that side, with Close or Reset
	broken  bool    // by Cut
}

// direction is one way of a pair.
type direction struct {
	limit   int
	shape   Shape
	chunks  []chunk   // sent, not read
	size    int       // bytes in chunks
	free    time.Time // when a limited rate has sent all of it
	fin     bool      // the sender has sent all it will send
	finTime time.Time // when that arrives
	rst     bool      // the sender has reset the connection
}

type chunk struct {
	data    []byte
	arrives time.Time
}

// reset reports whether a side has learned that the connection was reset.
func (p *pair) reset(side int) bool {
	in := &p.dirs[1-side]
	return p.broken || in.rst && !in.shape.Stall
}

// read takes what has arrived for a side. If nothing has, it returns no error
// and how long until something will, 0 for unknown. mu is held.
func (p *pair) read(side int, b []byte) (n int, wait time.Duration, err error) {
	in := &p.dirs[1-side]
	if p.reset(side) {
		return 0, 0, os.NewSyscallError("read", syscall.ECONNRESET)
	}
	if in.shape.Stall {
		return 0, 0, nil
	}
	now := time.Now()
	for n < len(b) && len(in.chunks) > 0 {
		c := &in.chunks[0]
		if wait = c.arrives.Sub(now); wait > 0 {
			break
		}
		k := copy(b[n:], c.data)
		n += k
		if c.data = c.data[k:]; len(c.data) == 0 {
			in.chunks[0] = chunk{}
			in.chunks = in.chunks[1:]
		}
	}
	if n > 0 {
		in.size -= n
		p.changed.wake()
		return n, 0, nil
	}
	if len(in.chunks) == 0 && in.fin {
		if wait = in.finTime.Sub(now); wait <= 0 {
			return 0, 0, io.EOF
		}
	}
	return 0, wait, nil
}

// write sends as much of b as there is room for. mu is held.
func (p *pair) write(side int, b []byte) (int, error) {
	out := &p.dirs[side]
	switch {
	case p.reset(side):
		return 0, os.NewSyscallError("write", syscall.ECONNRESET)
	case out.fin:
		return 0, os.NewSyscallError("write", syscall.EPIPE)
	case p.closed[1-side] && !out.shape.Stall:
		// Like TCP: the far kernel takes the bytes and answers with a reset.
		p.dirs[1-side].rst = true
		p.changed.wake()
		return len(b), nil
	}
	n := min(len(b), out.limit-out.size)
	if n <= 0 {
		return 0, nil
	}
	out.send(b[:n])
	p.changed.wake()
	return n, nil
}

// send puts a copy of b on its way.
func (d *direction) send(b []byte) {
	b = append([]byte(nil), b...)
	d.size += len(b)
	if d.shape.Rate <= 0 {
		d.chunks = append(d.chunks, chunk{b, time.Now().Add(d.shape.Latency)})
		return
	}
	// In pieces of at most 10 ms, so that bytes trickle rather than jump.
	piece := int(max(1, min(d.shape.Rate/100, 16<<10)))
	for len(b) > 0 {
		k := min(piece, len(b))
		d.chunks = append(d.chunks, chunk{b[:k:k], d.depart(k)})
		b = b[k:]
	}
}

// depart is when n more bytes will have arrived at a limited rate.
func (d *direction) depart(n int) time.Time {
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(int64(n) * int64(time.Second) / d.shape.Rate))
	return d.free.Add(d.shape.Latency)
}

// finish sends the end of a side's data. mu is held.
func (p *pair) finish(side int) {
	out := &p.dirs[side]
	if out.fin {
		return
	}
	out.fin = true
	out.finTime = time.Now().Add(out.shape.Latency)
	if last := out.free.Add(out.shape.Latency); out.finTime.Before(last) {
		out.finTime = last
	}
	p.changed.wake()
}

// close ends a side: in order if everything that arrived was read, else (or if
// abort) with a reset. It reports whether the pair is over. mu is held.
func (p *pair) close(side int, abort bool) bool {
	in, out := &p.dirs[1-side], &p.dirs[side]
	p.closed[side] = true
	if abort || in.size > 0 && !in.shape.Stall {
		out.rst = true
		out.chunks, out.size = nil, 0
	} else {
		p.finish(side)
	}
	if !in.shape.Stall {
		in.chunks, in.size = nil, 0
	}
	p.changed.wake()
	return p.closed[1-side]
}

// cut breaks the connection for both sides.
func (p *pair) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = true
	for i := range p.dirs {
		p.dirs[i].chunks, p.dirs[i].size = nil, 0
	}
	p.changed.wake()
}

// reshape changes how direction i carries what is sent from now on.
func (p *pair) reshape(i int, s Shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.dirs[i]
	d.shape = s
	if !s.Stall && p.closed[1-i] && d.size > 0 {
		// What stalled arrives at a closed socket.
		p.dirs[1-i].rst = true
		d.chunks, d.size = nil, 0
	}
	p.changed.wake()
}
