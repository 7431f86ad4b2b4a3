package endpoint

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The way up: from the link's reader through the queue to the endpoint's socket.

// directWrite is the most bytes that the link's reader writes to a socket
// itself. Waking the pump for a small packet takes longer than writing it; a
// large one would keep the reader from the other connections.
const directWrite = 8 << 10

// Limits of one gathered write.
const (
	batchItems = 8
	batchBytes = 64 << 10
)

// data takes what the server sent. It waits only behind a server without
// credit. The link's reader calls it.
func (c *conn) data(p wire.Payload) {
	n := int64(p.Len())
	if n == 0 {
		p.Free()
		return
	}
	c.mu.Lock()
	if !c.accepts(n) {
		c.unlock()
		p.Free()
		return
	}
	idle := c.accepted == c.taken
	if idle {
		c.progress = time.Now()
	}
	c.accepted += n
	c.unlock()
	// While idle the pump writes nothing and will not, since only this
	// goroutine gives it work.
	if idle && n <= directWrite && c.writeDirectly(&p) {
		return
	}
	c.push(p)
}

// accepts reports whether n more bytes are for the endpoint, and ends the
// connection if they must not have been sent. mu is held.
func (c *conn) accepts(n int64) bool {
	switch c.state {
	case stateOpen, stateEndpointDone:
		if c.window != nil && c.window.Received(n) != nil {
			c.applyLocked(evAbort, End{Reason: wire.ReasonCreditViolation, Text: "more data than credit"})
			return false
		}
		return true
	case stateServerDone, stateFinSent, stateBothDone:
		c.applyLocked(evAbort, End{Reason: wire.ReasonProtocolError, Text: "data after half-close"})
	case stateEndpointClosed, stateAnswered, stateFlushing:
		// The server has not heard yet that it is over. What it sends counts as
		// taken, or its client might wait for credit with its back to our end.
		c.table.out.Grant(c.id, n)
	}
	return false
}

// writeDirectly writes what the socket takes at once, and reports whether that
// was all. Otherwise p is the rest.
func (c *conn) writeDirectly(p *wire.Payload) bool {
	if c.upFailed.Load() {
		return false
	}
	var array [4][]byte
	n := c.sock.tryWrite(p.AppendTo(array[:0]))
	if n == 0 {
		return false
	}
	c.written.Add(int64(n))
	c.took(int64(n))
	done := n == p.Len()
	head := p.Split(n)
	head.Free()
	return done
}

// push queues p for the pump.
func (c *conn) push(p wire.Payload) {
	err := c.queue.Push(p)
	if errors.Is(err, flow.ErrFull) {
		err = c.pushFull(p)
	}
	if err != nil {
		p.Free()
	}
}

// pushFull queues p although the queue is full, or ends the connection.
func (c *conn) pushFull(p wire.Payload) error {
	if c.window != nil {
		// It keeps to its credit, so only items that do not merge can be the cause.
		c.apply(evAbort, End{Reason: wire.ReasonProtocolError, Text: "too many small packets"})
		return errEnded
	}
	room := c.table.room
	room.obs.ReaderBlocked(1)
	waited, err := c.queue.PushWait(p, c.stalls.allowance(time.Now(), room.cfg.StuckTunnelTimeout))
	room.obs.ReaderBlocked(-1)
	c.stalls.add(time.Now(), waited)
	if errors.Is(err, flow.ErrFull) {
		c.apply(evAbort, End{Reason: wire.ReasonStuck, Text: "endpoint does not read and stalls the other connections of this agent"})
	}
	return err
}

// took accounts for n bytes that the endpoint has taken, or that were thrown
// away: the server may send as many more.
func (c *conn) took(n int64) {
	now := time.Now()
	rtt := time.Duration(0)
	if c.window != nil {
		rtt = c.table.out.MinRTT()
	}
	c.mu.Lock()
	c.taken += n
	c.progress = now
	grant := int64(0)
	if c.window != nil {
		grant = c.window.Consumed(n, now, rtt)
	}
	if c.closing() {
		c.sock.setWriteDeadline(now.Add(c.table.room.cfg.CloseTimeout))
	}
	c.unlock()
	if grant > 0 {
		c.table.out.Grant(c.id, grant)
	}
}

// pumpUp writes the queue to the socket until the queue is closed.
func (c *conn) pumpUp() {
	for {
		p, err := c.queue.Pop()
		if err != nil {
			c.upEnded(err)
			return
		}
		c.forward(p)
	}
}

// forward writes p, and what else waits, in as few calls as possible.
func (c *conn) forward(p wire.Payload) {
	var items [batchItems]wire.Payload
	items[0] = p
	count, left := 1, int64(p.Len())
	for count < batchItems && left < batchBytes {
		q, ok := c.queue.TryPop()
		if !ok {
			break
		}
		items[count] = q
		count++
		left += int64(q.Len())
	}
	var array [2 * batchItems][]byte
	v := array[:0]
	for _, item := range items[:count] {
		v = item.AppendTo(v)
	}
	for len(v) > 0 && !c.upFailed.Load() {
		n, err := c.sock.write(v)
		if err != nil {
			c.writeFailed(err)
			break
		}
		c.written.Add(int64(n))
		c.took(int64(n))
		left -= int64(n)
		v = advance(v, n)
	}
	if left > 0 {
		c.took(left)
	}
	for _, item := range items[:count] {
		item.Free()
	}
}

// advance drops the first n bytes of v.
func advance(v [][]byte, n int) [][]byte {
	for len(v) > 0 && n >= len(v[0]) {
		n -= len(v[0])
		v = v[1:]
	}
	if n > 0 {
		v[0] = v[0][n:]
	}
	return v
}

// writeFailed says why the socket takes no more.
func (c *conn) writeFailed(err error) {
	c.upFailed.Store(true)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.apply(evGiveUp, End{Reason: wire.ReasonCloseTimeout, Text: "endpoint does not take the rest of the data"})
	case errors.Is(err, net.ErrClosed): // by ourselves
	default:
		c.apply(evWriteFailed, End{Reason: wire.ReasonReset})
	}
}

// upEnded says that the queue is over: the endpoint has everything, unless the
// connection has ended or the socket had failed.
func (c *conn) upEnded(err error) {
	if !errors.Is(err, io.EOF) {
		return
	}
	if by := c.parting(); !by.IsZero() {
		c.awaitAcks(by)
		c.apply(evDelivered, End{})
		return
	}
	if !c.upFailed.Load() {
		c.finSent.Store(true)
		if c.sock.closeWrite() == nil {
			c.apply(evDelivered, End{})
			return
		}
	}
	c.apply(evWriteFailed, End{Reason: wire.ReasonReset})
}

// parting is until when a parting connection may write; zero if it is none.
func (c *conn) parting() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != stateParting {
		return time.Time{}
	}
	return c.partBy
}

// awaitAcks waits until the endpoint's host has everything and the endpoint has
// had a moment to read it, because the reset that follows may take back what it
// has not; but no longer than until by.
func (c *conn) awaitAcks(by time.Time) {
	poll := time.NewTicker(ackPoll)
	defer poll.Stop()
	for moments := 0; moments < 10 && time.Now().Before(by); {
		if c.sock.unacked() == 0 {
			moments++
		}
		<-poll.C
	}
}

// ackPoll is how often acknowledgements are looked at in a hurry.
const ackPoll = 10 * time.Millisecond
