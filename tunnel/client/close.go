package client

import (
	"context"
	"net"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	// stuckAfter is how long nothing was sent of what was written for Close to
	// give it up.
	stuckAfter = 5 * time.Second
	// endGrace is how long a stream may take to end when all is said.
	endGrace = time.Second
)

// Close implements net.Conn. It returns at once, and nil; reads and writes
// return net.ErrClosed from now on. In the background, what was written before
// is delivered and the server's answer awaited, as long as there is progress
// within Options.CloseTimeout. If the endpoint has taken nothing for 5 s
// already, the connection is aborted instead. See CloseContext for how that
// went.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.letGo()
	if !c.state.established() {
		return nil // it has ended already
	}
	if c.sender.stuckFor() >= stuckAfter {
		c.over(finished, &EndError{Reason: wire.ReasonCloseTimeout})
		c.cancel()
		return nil
	}
	c.advance(selfClosed)
	c.sender.outflow.moved()
	c.sender.closeReq = true
	c.arm(c.opts.CloseTimeout, c.closeDue)
	c.startSender()
	return nil
}

// letGo is what every close by the caller begins with. mu is held.
func (c *Conn) letGo() {
	c.closed = true
	c.readDeadline.stop()
	c.writeDeadline.stop()
	c.received.drop()
	c.wake()
}

// closeDue runs on the timer: it gives up a close that makes no progress.
func (c *Conn) closeDue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != closing {
		return
	}
	if left := c.opts.CloseTimeout - c.sender.outflow.idleFor(); left > 0 {
		c.arm(left, c.closeDue)
		return
	}
	c.over(finished, &EndError{Reason: wire.ReasonCloseTimeout})
	c.cancel()
}

// CloseContext is Close, and waits until everything that was written has been
// delivered and the close was answered. Its error is nil then; else it is why
// bytes may be missing, or ctx's error if that ended first, while the close goes
// on in the background. It may be called after Close.
func (c *Conn) CloseContext(ctx context.Context) error {
	_ = c.Close() // always nil
	select {
	case <-c.done:
	case <-ctx.Done():
		return c.opError("close", ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return c.opError("close", c.endErr)
	}
	return nil
}

// Abort closes the connection at once and without order: what was written and
// has not left is lost, and the endpoint sees a reset. It returns nil.
func (c *Conn) Abort() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.letGo()
	c.abort(wire.ReasonAborted)
	return nil
}

// abort ends the connection, or the dial, by ending its stream. mu is held.
func (c *Conn) abort(reason wire.Reason) {
	if c.state <= dialing {
		c.dialErr = dialError(wire.ReasonTunnelClosed, c.address, net.ErrClosed)
	}
	c.over(finished, &EndError{Reason: reason, Err: net.ErrClosed})
	c.cancel()
}

// shut is what the end of the tunnel does to the connection: one that is being
// closed goes on.
func (c *Conn) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state < closing {
		c.abort(wire.ReasonAborted)
	}
}

// endStream ends a stream on which all is said, in order. An old server leaves
// it open and waits for our side; one of ours ends it itself. mu is held.
func (c *Conn) endStream() {
	c.sender.closeSend = c.ext == 0
	c.arm(endGrace, c.cancel)
	c.startSender()
}
