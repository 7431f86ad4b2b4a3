package endpoint

import (
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// socket is an endpoint's connection as the two pumps use it: one goroutine
// reads, one writes; the rest may be called from anywhere.
type socket interface {
	// read waits until there is something to read, without holding a buffer
	// meanwhile, and returns it. The error is io.EOF, os.ErrDeadlineExceeded,
	// net.ErrClosed or what the kernel says.
	read() (wire.Payload, error)
	// write waits until the socket takes some of v and reports how much that
	// was: more than nothing unless there is an error.
	write(v [][]byte) (int, error)
	// tryWrite writes what the socket takes at once, perhaps nothing. Errors
	// are left for write to find. The caller sees to it that nobody else writes.
	tryWrite(v [][]byte) int
	// closeWrite sends a FIN.
	closeWrite() error
	// wasReset reports, after read returned io.EOF, whether the connection was
	// really reset and the error went to a writer.
	wasReset() bool
	// unacked is the number of bytes that were written and that the endpoint's
	// host has not acknowledged.
	unacked() int64
	setReadDeadline(t time.Time)
	setWriteDeadline(t time.Time)
	// close ends both directions; all calls return.
	close()
	// reset is close, and tells the endpoint that the end is an abnormal one.
	reset()
}

// Sizes in bytes.
const (
	// chunkSize is what one buffer holds: the most that fits into one DATA.
	chunkSize = 32 << 10
	// maxChunks is how many buffers a read fills at once while they all get full.
	maxChunks = 4
	// smallRead is the most that is copied out of a chunk, so that few bytes
	// that wait do not keep a whole one.
	smallRead = 8 << 10
)

// chunks is a pool of buffers of chunkSize. They are not cleared: a read fills
// what is used of them.
type chunks struct{ pool sync.Pool }

// Get implements mem.BufferPool. length is at most chunkSize.
func (c *chunks) Get(length int) *[]byte {
	if b, ok := c.pool.Get().(*[]byte); ok {
		*b = (*b)[:length]
		return b
	}
	b := make([]byte, length, chunkSize)
	return &b
}

// Put implements mem.BufferPool.
func (c *chunks) Put(b *[]byte) { c.pool.Put(b) }

// payload makes a payload of the first n bytes of bufs, which it takes over.
func (c *chunks) payload(bufs []*[]byte, n int) wire.Payload {
	if n <= smallRead {
		p := wire.CopyPayload((*bufs[0])[:n])
		c.putAll(bufs)
		return p
	}
	slice := make(mem.BufferSlice, 0, len(bufs))
	for i, b := range bufs {
		if n == 0 {
			c.putAll(bufs[i:])
			break
		}
		k := min(n, len(*b))
		*b = (*b)[:k]
		n -= k
		slice = append(slice, mem.NewBuffer(b, c))
	}
	return wire.PayloadOf(slice)
}

func (c *chunks) putAll(bufs []*[]byte) {
	for _, b := range bufs {
		c.Put(b)
	}
}

// newSocket returns the best socket for a connection.
func newSocket(c net.Conn, pool *chunks) socket {
	if tc, ok := c.(*net.TCPConn); ok {
		if s := newTCPSocket(tc, pool); s != nil {
			return s
		}
	}
	return &streamSocket{conn: c, pool: pool}
}

// streamSocket works on any net.Conn: other systems, and tests in memory.
type streamSocket struct {
	conn net.Conn
	pool *chunks
}

func (s *streamSocket) read() (wire.Payload, error) {
	b := s.pool.Get(chunkSize)
	n, err := s.conn.Read(*b)
	if n == 0 {
		s.pool.Put(b)
		if err == nil {
			err = io.ErrNoProgress
		}
		return wire.Payload{}, err
	}
	return s.pool.payload([]*[]byte{b}, n), nil // an error comes again
}

// streamWrite is how many bytes are written at once, so that progress shows.
const streamWrite = 4 << 10

func (s *streamSocket) write(v [][]byte) (int, error) {
	n, err := s.conn.Write(v[0][:min(len(v[0]), streamWrite)])
	if n > 0 {
		return n, nil // an error comes again
	}
	return 0, err
}

func (s *streamSocket) tryWrite([][]byte) int { return 0 }

func (s *streamSocket) closeWrite() error {
	if c, ok := s.conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

func (s *streamSocket) wasReset() bool { return false }

// unacked counts for connections that can tell.
func (s *streamSocket) unacked() int64 {
	if c, ok := s.conn.(interface{ Unacked() int64 }); ok {
		return c.Unacked()
	}
	return 0
}

func (s *streamSocket) setReadDeadline(t time.Time)  { _ = s.conn.SetReadDeadline(t) }
func (s *streamSocket) setWriteDeadline(t time.Time) { _ = s.conn.SetWriteDeadline(t) }
func (s *streamSocket) close()                       { _ = s.conn.Close() }

func (s *streamSocket) reset() {
	if c, ok := s.conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	_ = s.conn.Close()
}
