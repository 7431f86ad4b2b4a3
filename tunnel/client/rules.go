package client

import (
	"errors"
	"io"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// read is the reader: it receives and applies until the stream ends.
func (c *Conn) read() {
	for {
		c.awaitRoom()
		if err := c.stream.RecvMsg(&c.in); err != nil {
			c.lost(err)
			break
		}
		c.opts.Observer.Received(c.in.Type)
		if !c.greeted {
			c.greet()
		}
		c.mu.Lock()
		c.apply(&c.in)
		c.mu.Unlock()
	}
	c.finish()
}

// greet reads the server's headers, which have come: they are before the first
// packet. A server that answers the list of extensions does so at once, an old
// one sends headers with its first packet only, so nobody waits for them.
func (c *Conn) greet() {
	c.greeted = true
	md, err := c.stream.Header()
	if err != nil {
		return // the next RecvMsg tells
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ext = link.Answer(c.opts.extensions(), link.Offered(md))
}

// lost reacts to the end of the stream.
func (c *Conn) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		err = errStreamEnded // io.EOF to the caller is the endpoint's orderly end
	case c.state < ending:
		c.opts.Observer.ReceiveFailed(err)
	}
	if c.state <= dialing {
		c.dialErr = dialError(wire.ReasonTunnelClosed, c.address, err)
	}
	c.over(streamLost, &EndError{Reason: wire.ReasonLinkLost, Err: err})
}

// finish waits for the sender, whom the end of the stream frees, and lets go of
// everything.
func (c *Conn) finish() {
	c.mu.Lock()
	for c.sender.busy {
		c.writable.Wait()
	}
	c.disarm()
	c.mu.Unlock()
	c.cancel()
	c.release()
	close(c.done)
}

// apply is the reader's switch. Types that a server does not send and types that
// nobody knows are passed over (COMPAT 1.6). mu is held.
func (c *Conn) apply(p *wire.Packet) {
	payload := p.Payload
	p.Payload = wire.Payload{}
	if c.state >= ending {
		payload.Free()
		return
	}
	switch p.Type {
	case wire.DialResponse:
		c.dialResponse(p)
	case wire.DialClose:
		c.dialClosed(p)
	case wire.Data:
		c.data(p, payload)
		return
	case wire.HalfClose:
		c.peerHalfClose(p)
	case wire.CloseResponse:
		c.closeResponse(p)
	}
	payload.Free()
}

// dialResponse is the answer to the dial. Another one than was asked for means
// that the two sides do not agree on what this stream is (COMPAT 1.7).
func (c *Conn) dialResponse(p *wire.Packet) {
	switch {
	case p.Mismatched:
		c.violation("DIAL_RSP without its payload")
	case c.state != dialing || p.DialID != c.dialID:
		c.violation("DIAL_RSP that was not asked for")
	case p.Error != "" || c.ext.Has(wire.ExtReason) && p.Reason != wire.ReasonNone:
		c.refused(p)
	case p.ConnectionID == 0:
		c.violation("DIAL_RSP without a connection ID")
	default:
		c.conn = p.ConnectionID
		c.advance(answered)
	}
}

// refused ends a dial to which the answer is no.
func (c *Conn) refused(p *wire.Packet) {
	reason := wire.ReasonNone
	if c.ext.Has(wire.ExtReason) {
		reason = p.Reason
	}
	if reason == wire.ReasonNone {
		reason = wire.ClassifyDialText(p.Error)
	}
	text := p.Error
	if text == "" {
		text = reason.String()
	}
	c.dialErr = &wire.DialError{Reason: reason, Err: &AnswerError{text}}
	c.over(finished, nil)
	c.endStream()
}

// dialClosed is the server's DIAL_CLS: it gives the dial up. After the answer it
// can only mean that the connection is no more.
func (c *Conn) dialClosed(p *wire.Packet) {
	switch {
	case p.Mismatched:
		c.violation("DIAL_CLS without its payload")
	case p.DialID != c.dialID || c.state == fresh:
		c.violation("DIAL_CLS for another dial")
	case c.state == dialing:
		c.dialErr = dialError(wire.ReasonBackendLost, c.address, ErrDialClosed)
		c.over(finished, nil)
		c.endStream()
	default:
		c.over(finished, &EndError{Reason: wire.ReasonOther, Err: ErrDialClosed})
		c.endStream()
	}
}

// data queues what has arrived. DATA without bytes says nothing; DATA for
// another connection is not ours.
func (c *Conn) data(p *wire.Packet, payload wire.Payload) {
	switch {
	case p.Mismatched:
		c.violation("DATA without its payload")
	case p.ConnectionID == 0:
	case c.state <= dialing:
		c.violation("DATA before the answer to the dial")
	case p.ConnectionID != c.conn || payload.Len() == 0 || c.state == closing:
	case !c.state.reads():
		c.violation("DATA after HALF_CLOSE")
	default:
		c.received.push(payload)
		c.readable.Signal()
		return
	}
	payload.Free()
}

// peerHalfClose says that the endpoint sends no more.
func (c *Conn) peerHalfClose(p *wire.Packet) {
	switch {
	case !c.ext.Has(wire.ExtHalfClose):
	case p.Mismatched:
		c.violation("HALF_CLOSE without its payload")
	case c.state.reads() && p.ConnectionID == c.conn:
		c.readErr = io.EOF
		c.advance(peerHalfClosed)
	}
}

// closeResponse is the end of the connection, whether it was asked for or not.
func (c *Conn) closeResponse(p *wire.Packet) {
	switch {
	case p.Mismatched:
		c.violation("CLOSE_RSP without its payload")
	case c.conn != 0 && p.ConnectionID == c.conn:
		reason := wire.ReasonNone
		if c.ext.Has(wire.ExtReason) {
			reason = p.Reason
		}
		c.over(finished, endError(reason, p.Error))
		c.endStream()
	}
}

// violation ends the stream at once: the server breaks the protocol.
func (c *Conn) violation(text string) {
	cause := &EndError{Reason: wire.ReasonProtocolError, Err: errors.New("the server sent " + text)}
	if c.state <= dialing {
		c.dialErr = dialError(cause.Reason, c.address, cause.Err)
	}
	c.over(finished, cause)
	c.cancel()
}
