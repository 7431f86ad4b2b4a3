package endpoint

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// conn is one connection to an endpoint.
type conn struct {
	// Fixed after construction.
	table    *Table
	id       wire.ConnectionID
	dialID   wire.DialID
	protocol string
	address  string
	remote   string
	since    time.Time
	sock     socket
	sender   Sender
	queue    *flow.Queue[wire.Payload]
	halfable bool // the tunnel can be half-closed

	// Atomic.
	written  atomic.Int64 // bytes that the endpoint's socket has taken
	read     atomic.Int64 // bytes read from it
	upFailed atomic.Bool  // the socket takes no more: what comes is thrown away
	finSent  atomic.Bool  // a FIN was sent, or is about to be

	// Owned by the link's reader.
	stalls stalls

	// Guarded by mu. Nothing that is called under it waits; Table.mu,
	// Endpoints.mu and the link's own locks may be taken under it.
	mu       sync.Mutex
	state    state
	window   *flow.Window // nil without extension "credit"
	accepted int64        // bytes that the server sent
	taken    int64        // those that the endpoint has taken, or that were thrown away
	progress time.Time    // when taken grew last, or accepted when nothing else waited
	answered bool         // a CLOSE_RSP was given to the link
	end      End          // how it ended
	report   bool         // the observer is to be told of the end
	partBy   time.Time    // until when a parting connection may write
	silence  *time.Timer  // of a half-closed connection
	moved    int64        // bytes in both directions when silence was looked at last
}

// errEnded is what a connection's queue is aborted with.
var errEnded = errors.New("connection ended")

// apply lets an event happen. why says more about one that may end the
// connection abnormally.
func (c *conn) apply(e event, why End) {
	c.mu.Lock()
	c.applyLocked(e, why)
	c.unlock()
}

// unlock gives mu back, and then tells the observer if the connection has ended.
func (c *conn) unlock() {
	if !c.report {
		c.mu.Unlock()
		return
	}
	c.report = false
	info, end := c.infoLocked(), c.end
	c.mu.Unlock()
	c.table.room.obs.Closed(info, end)
}

// applyLocked is apply for those who hold mu and give it back with unlock.
func (c *conn) applyLocked(e event, why End) {
	from := c.state
	c.state = next(from, e)
	if c.state == from {
		return
	}
	switch c.state {
	case stateServerDone:
		c.queue.CloseWhenEmpty(nil)
		c.watchSilence()
	case stateEndpointDone:
		c.halfClose()
		c.watchSilence()
	case stateBothDone:
		if from == stateServerDone {
			c.halfClose()
		}
		c.finishUp()
	case stateClosing, stateClosingDone:
		c.sender.Abort(nil)
		c.finishUp()
	case stateLingering:
		c.answerNow(End{})
		c.table.remove(c)
		c.sock.setReadDeadline(time.Now()) // wakes the down pump, which lingers
	case stateEndpointClosed:
		c.answerBehind(End{})
		c.finishUp()
	case stateAnswered:
		c.answerNow(End{})
	case stateParting:
		c.end = why
		c.sender.Abort(nil)
		c.queue.CloseWhenEmpty(nil)
		c.partBy = time.Now().Add(giveUpSoon)
		c.sock.setWriteDeadline(c.partBy)
	case stateFlushing:
		c.answerBehind(why)
		c.dropUp()
		c.endSocket(e)
	case stateEnded:
		c.answerNow(why)
		if from == stateParting {
			e = evAbort // whatever has ended it
		}
		c.endSocket(e)
		c.endAll(why)
	}
}

// halfClose puts a HALF_CLOSE behind the endpoint's data. mu is held.
func (c *conn) halfClose() {
	c.sender.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: c.id})
}

// finishUp closes the queue behind what is in it and starts the clock of the
// close timeout; for an endpoint that has been stuck for long already it is
// nearly over. mu is held.
func (c *conn) finishUp() {
	c.queue.CloseWhenEmpty(nil)
	now := time.Now()
	wait := c.table.room.cfg.CloseTimeout
	if c.accepted > c.taken && now.Sub(c.progress) >= stuckFor {
		wait = min(wait, giveUpSoon)
	}
	c.sock.setWriteDeadline(now.Add(wait))
}

// closing reports whether the clock of the close timeout runs. mu is held.
func (c *conn) closing() bool {
	switch c.state {
	case stateBothDone, stateClosing, stateClosingDone, stateEndpointClosed, stateAnswered:
		return true
	}
	return false
}

// answerBehind gives the link a CLOSE_RSP to send behind the endpoint's data,
// unless one was given already. mu is held.
func (c *conn) answerBehind(why End) {
	if c.answered {
		return
	}
	c.answered, c.end = true, why
	c.sender.Finish(c.closeResponse(why))
}

// answerNow gives the link a CLOSE_RSP to send at once and drops the endpoint's
// data. One that still waits behind data goes at once instead; if it has left
// nothing happens. mu is held.
func (c *conn) answerNow(why End) {
	if c.answered {
		if why.Reason == wire.ReasonNone {
			why = c.end
		}
		rsp := c.closeResponse(why)
		c.sender.Abort(&rsp)
		return
	}
	c.answered = true
	if c.end.Reason == wire.ReasonNone {
		c.end = why
	}
	c.sender.Abort(nil)
	c.table.out.Send(c.closeResponse(c.end))
}

// closeResponse makes the CLOSE_RSP. A reason comes with a text for people; a
// server that knows no reasons has always been told of a reset like of any end.
func (c *conn) closeResponse(why End) wire.Packet {
	if why.Text == "" && why.Reason != wire.ReasonNone && c.table.ext.Has(wire.ExtReason) {
		why.Text = why.Reason.String()
		if why.Reason == wire.ReasonReset {
			why.Text = "connection reset by the endpoint"
		}
	}
	return wire.Packet{Type: wire.CloseResponse, ConnectionID: c.id, Reason: why.Reason, Error: why.Text}
}

// dropUp gives the server credit for what is thrown away from now on, so that a
// client that writes all before it reads gets to the reading. mu is held.
func (c *conn) dropUp() {
	if c.window != nil {
		c.table.out.Grant(c.id, c.window.Size())
	}
}

// endSocket closes the endpoint's connection in the way that e calls for and
// drops the queue. It may be called again. mu is held.
func (c *conn) endSocket(e event) {
	switch e {
	case evAbort, evLost, evGiveUp:
		c.sock.reset()
	default:
		c.sock.close()
	}
	c.queue.Abort(errEnded)
	if c.window != nil {
		c.window.Release()
	}
}

// endAll takes the connection off every list. mu is held.
func (c *conn) endAll(why End) {
	if c.end.Reason == wire.ReasonNone {
		c.end = why
	}
	if c.silence != nil {
		c.silence.Stop()
	}
	c.table.remove(c)
	c.table.room.remove(c)
	c.report = true
}

// watchSilence starts to look whether bytes move in a half-closed connection.
// mu is held.
func (c *conn) watchSilence() {
	if c.silence == nil {
		c.moved = c.written.Load() + c.read.Load()
		c.silence = time.AfterFunc(c.table.room.cfg.HalfCloseTimeout, c.checkSilence)
	}
}

func (c *conn) checkSilence() {
	c.mu.Lock()
	defer c.unlock()
	switch c.state {
	case stateServerDone, stateFinSent, stateEndpointDone:
	default:
		return // both sides are over, or all of it
	}
	moved := c.written.Load() + c.read.Load()
	if moved == c.moved {
		c.applyLocked(evAbort, End{Reason: wire.ReasonHalfCloseTimeout, Text: "half-closed and silent for too long"})
		return
	}
	c.moved = moved
	c.silence.Reset(c.table.room.cfg.HalfCloseTimeout)
}

// info describes the connection.
func (c *conn) info() Info {
	c.mu.Lock()
	defer c.unlock()
	return c.infoLocked()
}

func (c *conn) infoLocked() Info {
	i := Info{
		ConnectionID: c.id,
		DialID:       c.dialID,
		Protocol:     c.protocol,
		Address:      c.address,
		Remote:       c.remote,
		Since:        c.since,
		State:        c.state.String(),
		Up:           c.written.Load(),
		Down:         c.read.Load(),
		UpQueued:     c.accepted - c.taken,
		DownQueued:   c.sender.Queued(),
	}
	if c.window != nil {
		i.Window = c.window.Size()
	}
	return i
}
