package client

import (
	"context"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Conn is a connection through a tunnel. All methods may be called concurrently;
// reads and writes are each served one at a time.
type Conn struct {
	// Fixed after construction.
	opts    Options
	stream  grpc.ClientStream
	cancel  context.CancelFunc // ends the stream at once
	release func()             // called when nothing is left but the reader
	done    chan struct{}      // closed by the reader, last of all

	// Fixed by the dial.
	address string
	dialID  wire.DialID

	// Owned by the reader.
	in      wire.Packet
	greeted bool // the server's headers were read

	// Owned by whoever has the sender's role.
	out wire.Packet

	mu       sync.Mutex
	readable sync.Cond // Read waits here
	writable sync.Cond // Write waits here, and the reader for the sender's end
	drained  sync.Cond // the reader waits here for room

	// Guarded by mu.
	state    state
	answered chan struct{} // closed when the dial is over
	dialErr  *wire.DialError
	conn     wire.ConnectionID // 0 until answered
	ext      wire.Extensions   // negotiated, known with the first packet
	closed   bool              // the caller has called Close or Abort
	readErr  error             // what Read returns after the last byte; nil while more may come
	writeErr error             // what Write returns; nil while it may write
	endErr   error             // how the connection ended; nil for in order
	timer    *time.Timer       // the one thing that is timed, if there is one

	received recvQueue
	sender   sender
	inWrite  bool // somebody is in Write

	readDeadline  deadline
	writeDeadline deadline
}

var _ net.Conn = (*Conn)(nil)

// newConn starts the reader of a stream that cancel ends. release is called when
// nothing of the connection is left, by the reader.
func newConn(opts Options, stream grpc.ClientStream, cancel context.CancelFunc, release func()) *Conn {
	c := &Conn{
		opts:     opts,
		stream:   stream,
		cancel:   cancel,
		release:  release,
		done:     make(chan struct{}),
		answered: make(chan struct{}),
	}
	c.readable.L, c.writable.L, c.drained.L = &c.mu, &c.mu, &c.mu
	opts.Observer.StatusChanged(StatusNone, StatusCreated)
	go c.read()
	return c
}

// advance moves the connection on and returns the state it was in. mu is held.
func (c *Conn) advance(e event) state {
	was := c.state
	c.state = next(was, e)
	if from, to := was.status(), c.state.status(); from != to {
		c.opts.Observer.StatusChanged(from, to)
	}
	if was <= dialing && c.state > dialing {
		close(c.answered)
	}
	if c.state != was {
		c.wake()
	}
	return was
}

// wake makes everybody look again. mu is held.
func (c *Conn) wake() {
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.drained.Broadcast()
}

// over ends the connection with finished or streamLost: nothing is sent or
// waited for any more, and end, nil for an orderly one, is what the caller
// learns. What has arrived can still be read. How the stream ends is up to the
// caller of over. mu is held.
func (c *Conn) over(e event, end error) {
	was := c.advance(e)
	if was >= ending {
		return
	}
	c.readErr, c.writeErr = or(c.readErr, or(end, io.EOF)), or(end, syscall.EPIPE)
	if end == nil && was != closing && c.sender.untaken() {
		end = syscall.EPIPE // the endpoint has closed without taking it
	}
	c.endErr = end
	c.sender.drop()
	c.disarm()
}

// or is the first error that there is.
func or(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// arm makes f run after d, in place of what was armed before. mu is held.
func (c *Conn) arm(d time.Duration, f func()) {
	c.disarm()
	c.timer = time.AfterFunc(d, f)
}

// disarm is for when nothing is timed any more. What fires nevertheless finds
// the connection in another state. mu is held.
func (c *Conn) disarm() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// Done is closed when the connection has ended, one way or the other, and
// nothing of it is left in the background. What has arrived can still be read.
func (c *Conn) Done() <-chan struct{} { return c.done }

// HalfCloses reports whether the server can carry a half-close: whether
// CloseWrite works.
func (c *Conn) HalfCloses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ext.Has(wire.ExtHalfClose)
}
