package client

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// maxWritten is how many bytes that were written and not sent make Write wait.
// gRPC holds 64 KiB more.
const maxWritten = 128 << 10

// Write implements net.Conn. It returns when all of b is accepted, that is, will
// be sent as long as the connection lives; b may be used again then. With an
// error it returns how many bytes were accepted. The error is *EndError after an
// abnormal end, syscall.EPIPE if the endpoint has closed or CloseWrite was
// called, os.ErrDeadlineExceeded, or net.ErrClosed, inside a *net.OpError.
func (c *Conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.takeTurn(); err != nil {
		return 0, c.opError("write", err)
	}
	defer c.endTurn()
	for n := 0; ; {
		if err := c.writeFault(); err != nil {
			return n, c.opError("write", err)
		}
		if len(b) == 0 {
			return 0, nil
		}
		if k := c.sender.queue.write(b[n:]); k > 0 {
			n += k
			c.startSender()
			if n == len(b) {
				return n, nil
			}
			continue
		}
		c.writable.Wait()
	}
}

// takeTurn waits until no other Write is at work, so that none gets between the
// bytes of another. mu is held.
func (c *Conn) takeTurn() error {
	for c.inWrite {
		if err := c.writeFault(); err != nil {
			return err
		}
		c.writable.Wait()
	}
	c.inWrite = true
	return nil
}

// endTurn lets the next Write in. mu is held.
func (c *Conn) endTurn() {
	c.inWrite = false
	c.writable.Broadcast()
}

// writeFault is why nothing may be written now. mu is held.
func (c *Conn) writeFault() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.writeErr != nil:
		return c.writeErr
	case c.writeDeadline.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// CloseWrite tells the endpoint that nothing more comes, behind all that was
// written, and returns at once; reading goes on. It is errors.ErrUnsupported,
// inside a *net.OpError, if the server cannot carry a half-close; then nothing
// has changed.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case c.writeErr != nil:
		if c.state.established() {
			return nil // it was called before
		}
		return c.opError("close", c.writeErr)
	case !c.ext.Has(wire.ExtHalfClose):
		return c.opError("close", errors.ErrUnsupported)
	}
	c.advance(selfHalfClosed)
	c.writeErr = syscall.EPIPE
	c.sender.halfClose = true
	c.startSender()
	return nil
}
