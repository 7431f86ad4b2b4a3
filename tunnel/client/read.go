package client

import (
	"errors"
	"io"
	"net"
	"os"
)

// maxReceived is how many unread bytes make the reader stop to receive. From
// then on HTTP/2's flow control holds the server back.
const maxReceived = 256 << 10

// Read implements net.Conn. The error is io.EOF after an orderly end, an
// *EndError after another, os.ErrDeadlineExceeded, or net.ErrClosed, all but the
// first inside a *net.OpError.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case len(b) == 0:
			return 0, nil
		case c.readDeadline.passed():
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case c.received.bytes > 0:
			n := c.received.read(b)
			c.drained.Signal()
			return n, nil
		case errors.Is(c.readErr, io.EOF):
			return 0, io.EOF
		case c.readErr != nil:
			return 0, c.opError("read", c.readErr)
		}
		c.readable.Wait()
	}
}

// awaitRoom makes the reader wait while the caller does not read. What nobody
// will read needs no room.
func (c *Conn) awaitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.state.reads() && c.received.bytes >= maxReceived {
		c.drained.Wait()
	}
}
