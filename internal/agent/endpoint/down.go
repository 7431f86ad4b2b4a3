package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The way down: from the endpoint's socket to the link.

// pumpDown reads the socket until it ends and hands what it reads to the link,
// or throws it away once the server wants no more. Then it waits until the last
// of it has left.
func (c *conn) pumpDown() {
	dropping := false
	for {
		p, err := c.sock.read()
		if err != nil {
			c.downEnded(err)
			break
		}
		c.read.Add(int64(p.Len()))
		if dropping {
			p.Free()
		} else {
			dropping = c.sender.Write(p) != nil
		}
	}
	c.sender.WaitEnded()
	c.apply(evFlushed, End{})
}

// downEnded says why nothing more is read. In lingering that is only the way to
// wake this goroutine.
func (c *conn) downEnded(err error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.linger()
	case errors.Is(err, net.ErrClosed): // by ourselves
	case !errors.Is(err, io.EOF) || c.upFailed.Load() || !c.finSent.Load() && c.sock.wasReset():
		c.apply(evReadFailed, End{Reason: wire.ReasonReset})
	case c.halfable:
		c.apply(evEOF, End{})
		if c.upFailed.Load() { // meanwhile, which meant nothing as long as there was something to read
			c.apply(evWriteFailed, End{Reason: wire.ReasonReset})
		}
	default:
		c.apply(evEOFFull, End{})
	}
}

// linger reads the socket and throws it away until it may be closed.
func (c *conn) linger() {
	l := newLinger(time.Now(), c.sock.unacked(), c.table.room.quiet(), c.table.room.cfg.CloseTimeout)
	for {
		c.sock.setReadDeadline(l.until)
		p, err := c.sock.read()
		now := time.Now()
		switch {
		case err == nil:
			c.read.Add(int64(p.Len()))
			p.Free()
			l.heard(now)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			c.apply(evLingered, End{})
			return
		}
		switch l.check(now, c.sock.unacked()) {
		case lingerDone:
			c.apply(evLingered, End{})
			return
		case lingerGiveUp:
			c.sock.reset()
			c.apply(evLingered, End{Reason: wire.ReasonCloseTimeout})
			return
		}
	}
}
