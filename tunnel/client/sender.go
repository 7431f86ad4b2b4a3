package client

import (
	"errors"
	"io"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Who sends. SendMsg blocks while HTTP/2's flow control gives no room, and all
// that frees it then is the end of the whole stream. But a Write has to return
// at its deadline or when somebody calls Close, and the connection to live on, or
// to close in order. So a goroutine of the caller's must never be caught in a
// SendMsg that blocks.
//
// Sending is therefore a role, which one goroutine has at a time. A Write whose
// bytes gRPC is certain to take at once has it itself. Otherwise a goroutine
// takes it that lives as long as there is something to send; Write only queues,
// and waits for room in the queue, which it can stop to do at any time.
//
// When gRPC is certain: it takes messages of a stream until 64 KiB of them wait
// to be written to the network, and outflow knows how many do. Should a version
// of gRPC ever take less, a deadline would count late; should it not give
// buffers back, the goroutine would be needed more often. Nothing else would
// change.

// certain is what gRPC takes, in bytes, but for a reserve for what outflow does
// not count: control packets, and a frame that is just being written.
const certain = 40 << 10

// sender is what is to be sent, and who does it. Guarded by the connection's mu,
// outflow apart.
type sender struct {
	queue   sendQueue
	outflow outflow
	busy    bool // somebody has the role
	inData  bool // and is in SendMsg with data

	dialReq string // the network of a DIAL_REQ, which goes out first

	// What goes out behind the data, in this order.
	halfClose bool // HALF_CLOSE
	closeReq  bool // CLOSE_REQ
	dialClose bool // DIAL_CLS
	closeSend bool // the end of our side of the stream
}

// untaken reports whether gRPC has not taken all that was written.
func (s *sender) untaken() bool { return s.queue.bytes > 0 || s.inData }

// stuckFor is how long nothing has left although there is something.
func (s *sender) stuckFor() time.Duration {
	if s.queue.bytes == 0 && s.outflow.inside.Load() == 0 {
		return 0
	}
	return s.outflow.idleFor()
}

// drop frees the data that is queued, and forgets what was to follow it on the
// connection.
func (s *sender) drop() {
	s.queue.drop()
	s.halfClose, s.closeReq = false, false
}

// startSender sees to it that what is queued goes out; if somebody has the role,
// he does it. mu is held, but not all the time.
func (c *Conn) startSender() {
	s := &c.sender
	if s.busy {
		return
	}
	s.busy = true
	if s.outflow.inside.Load() == 0 {
		s.outflow.moved() // nothing was stuck before
	}
	for s.outflow.inside.Load()+int64(s.queue.bytes)+overhead <= certain {
		if !c.sendOne() {
			c.rest()
			return
		}
	}
	go c.runSender()
}

// runSender has the role until there is nothing to send.
func (c *Conn) runSender() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.sendOne() {
	}
	c.rest()
}

// rest gives the role up. mu is held.
func (c *Conn) rest() {
	c.sender.busy = false
	c.writable.Broadcast()
}

// sendOne sends the next thing; false means that there is none, or that the
// stream takes none any more. The caller has the role. mu is held, but not while
// gRPC works.
func (c *Conn) sendOne() bool {
	s := &c.sender
	switch {
	case s.dialReq != "":
		network := s.dialReq
		s.dialReq = ""
		return c.sendPacket(wire.Packet{Type: wire.DialRequest, DialID: c.dialID, Protocol: network, Address: c.address})
	case s.queue.bytes > 0:
		payload := s.outflow.payload(s.queue.pop())
		return c.sendPacket(wire.Packet{Type: wire.Data, ConnectionID: c.conn, Payload: payload})
	case s.halfClose:
		s.halfClose = false
		return c.sendPacket(wire.Packet{Type: wire.HalfClose, ConnectionID: c.conn})
	case s.closeReq:
		s.closeReq = false
		return c.sendPacket(wire.Packet{Type: wire.CloseRequest, ConnectionID: c.conn})
	case s.dialClose:
		s.dialClose = false
		return c.sendPacket(wire.Packet{Type: wire.DialClose, DialID: c.dialID})
	case s.closeSend:
		s.closeSend = false
		c.mu.Unlock()
		_ = c.stream.CloseSend() // never fails
		c.mu.Lock()
		return true
	}
	return false
}

// sendPacket sends p and takes ownership of its payload. The caller has the
// role. mu is held, but not while gRPC works.
func (c *Conn) sendPacket(p wire.Packet) bool {
	c.sender.inData = p.Type == wire.Data
	c.mu.Unlock()
	c.out = p
	err := c.stream.SendMsg(&c.out)
	c.out.Payload.Free()
	c.out = wire.Packet{}
	switch {
	case err == nil:
		c.opts.Observer.Sent(p.Type)
	case !errors.Is(err, io.EOF): // which means that RecvMsg knows why
		c.opts.Observer.SendFailed(p.Type, err)
	}
	c.mu.Lock()
	c.sender.inData = false
	c.writable.Broadcast()
	return err == nil
}
