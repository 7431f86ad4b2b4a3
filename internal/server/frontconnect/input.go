package frontconnect

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// chunkSize is what one read of a socket takes at most, in bytes.
	chunkSize = 32 << 10
	// recordSize is the most that one read of a TLS connection returns.
	recordSize = 16 << 10
	// peekSize is what a TLS connection that is idle or trickles holds.
	peekSize = 1 << 10
)

// chunkPool hands out read buffers of one size, which, unlike grpc/mem's own
// pools, it does not clear: they are read into before anyone looks at them.
type chunkPool struct {
	// Fixed after construction.
	size int

	pool sync.Pool
}

// Get returns a buffer of length size, whatever n is; n must not be more.
func (c *chunkPool) Get(n int) *[]byte {
	b, ok := c.pool.Get().(*[]byte)
	if !ok {
		fresh := make([]byte, c.size)
		b = &fresh
	}
	*b = (*b)[:c.size]
	return b
}

// Put takes a buffer back. mem.Buffer calls it when its last reference is freed.
func (c *chunkPool) Put(b *[]byte) {
	if cap(*b) >= c.size {
		c.pool.Put(b)
	}
}

// payload makes a payload of the first n bytes of b, which it takes over. Few
// bytes are copied out, so that what waits in a queue costs about its own size.
func (c *chunkPool) payload(b *[]byte, n int) wire.Payload {
	if n <= c.size/2 {
		p := wire.CopyPayload((*b)[:n])
		c.Put(b)
		return p
	}
	*b = (*b)[:n]
	return wire.PayloadOf(mem.BufferSlice{mem.NewBuffer(b, c)})
}

// input is the client's bytes as payloads. next blocks until there are some; the
// caller owns the payload. The end is io.EOF. Used by one goroutine.
type input interface {
	next() (wire.Payload, error)
}

// socketInput reads a socket of the kernel. It holds a buffer only while there is
// something to read, so an idle tunnel holds none.
type socketInput struct {
	// Fixed after construction.
	rc   syscall.RawConn
	pool *chunkPool
	try  func(fd uintptr) bool // s.attempt, bound once

	// Owned by the reading goroutine.
	got wire.Payload
	err error
}

func newSocketInput(rc syscall.RawConn, pool *chunkPool) *socketInput {
	in := &socketInput{rc: rc, pool: pool}
	in.try = in.attempt
	return in
}

func (in *socketInput) next() (wire.Payload, error) {
	if err := in.rc.Read(in.try); err != nil {
		return wire.Payload{}, err
	}
	p, err := in.got, in.err
	in.got, in.err = wire.Payload{}, nil
	return p, err
}

// attempt reads once and reports whether it is done; if not, the runtime waits
// until the socket is readable.
func (in *socketInput) attempt(fd uintptr) bool {
	b := in.pool.Get(chunkSize)
	n, err := syscall.Read(int(fd), *b)
	for errors.Is(err, syscall.EINTR) {
		n, err = syscall.Read(int(fd), *b)
	}
	switch {
	case err == nil && n > 0:
		in.got = in.pool.payload(b, n)
		return true
	case err == nil:
		in.err = io.EOF
	case errors.Is(err, syscall.EAGAIN):
		in.pool.Put(b)
		return false
	default:
		in.err = os.NewSyscallError("read", err)
	}
	in.pool.Put(b)
	return true
}

// streamInput reads anything else, TLS above all, with a small buffer until the
// client sends more than fits, and a large one until it sends less again.
type streamInput struct {
	// Fixed after construction.
	conn io.Reader
	pool *chunkPool

	// Owned by the reading goroutine.
	peek []byte
	bulk bool
	err  error // came with the last bytes
}

func newStreamInput(conn io.Reader, pool *chunkPool) *streamInput {
	return &streamInput{conn: conn, pool: pool, peek: make([]byte, peekSize)}
}

func (in *streamInput) next() (wire.Payload, error) {
	for in.err == nil {
		if p := in.read(); p.Len() > 0 {
			return p, nil
		}
	}
	err := in.err
	in.err = nil // a deadline may be moved and the read tried again
	return wire.Payload{}, err
}

func (in *streamInput) read() wire.Payload {
	var n int
	if !in.bulk {
		n, in.err = in.conn.Read(in.peek)
		in.bulk = n == len(in.peek)
		return wire.CopyPayload(in.peek[:n])
	}
	b := in.pool.Get(in.pool.size)
	n, in.err = in.conn.Read(*b)
	in.bulk = n > peekSize
	if n == 0 {
		in.pool.Put(b)
		return wire.Payload{}
	}
	return in.pool.payload(b, n)
}
