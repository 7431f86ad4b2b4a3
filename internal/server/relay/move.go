package relay

import (
	"errors"
	"io"
	"math"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// What a tunnel's down queue is closed with, beside io.EOF when the agent's part
// is over.
var (
	errEndpointDone = errors.New("the endpoint has half-closed")
	errDiscard      = errors.New("what comes down is thrown away")
)

// interruptGrace is how long a call of the frontend that may still come to its
// end by itself is given before it is interrupted, so that the client of a
// tunnel that broke can be told.
const interruptGrace = 250 * time.Millisecond

// apply moves the tunnel to its next state and does what that asks for. end says
// why, if e is one that ends something. It may be called from any goroutine that
// holds no lock; it does not block. An event that changes nothing costs nothing.
func (t *Tunnel) apply(e event, end End) {
	t.mu.Lock()
	from := t.state
	to := next(from, e)
	if to == from {
		t.mu.Unlock()
		return
	}
	t.state = to
	if (to == delivering || to == over) && !t.end.Abnormal() {
		t.end = end
	}
	var grant int64
	if from == dialing {
		close(t.stop)
		t.stop = nil
	} else {
		grant = t.enter(from, to, e)
	}
	writing, established := t.writing, from != dialing
	reason := t.end.Reason
	t.change.Broadcast()
	t.mu.Unlock()

	t.grant(grant)
	if established && to == over {
		t.leave(from, e, reason)
	}
	if writing && to.discards() {
		t.interrupt(to != over || e == evClientLost)
	}
}

// enter does what a state asks for when it begins, and returns what to grant the
// agent. mu is held; nothing here blocks.
func (t *Tunnel) enter(from, to state, e event) (grant int64) {
	down, sender := t.leg.down, t.leg.sender
	switch to {
	case clientDone:
		if t.leg.canHalf {
			sender.Finish(wire.Packet{Type: wire.HalfClose, ConnectionID: t.leg.id})
		}
	case endpointDone:
		down.CloseWhenEmpty(errEndpointDone)
	case closing:
		if e == evEndpointHalf {
			down.CloseWhenEmpty(errEndpointDone)
		}
		t.finishUp()
	case hungUp:
		grant = t.discard()
	case leaving:
		grant = t.discard()
		t.finishUp()
	case delivering:
		sender.Abort(nil) // the endpoint takes no more
		down.CloseWhenEmpty(io.EOF)
	case over:
		sender.Abort(nil)
		down.Abort(errDiscard)
		if t.window != nil {
			t.window.Release()
		}
	}
	t.arm(from, to)
	return grant
}

// discard throws away what waits for the client, and returns what to grant the
// agent for it. mu is held.
func (t *Tunnel) discard() (grant int64) {
	t.leg.down.Abort(errDiscard)
	return t.consume(math.MaxInt64)
}

// finishUp queues a CLOSE_REQ behind the last byte. mu is held.
func (t *Tunnel) finishUp() {
	t.leg.sender.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: t.leg.id})
}

// consume takes note of n bytes, or all there are, that have left for the client
// or were thrown away, and returns what to grant the agent. mu is held.
func (t *Tunnel) consume(n int64) (grant int64) {
	if t.window == nil || t.state == delivering { // then the agent needs no more
		return 0
	}
	return t.window.Consumed(n, time.Now(), t.leg.peer.out.MinRTT())
}

func (t *Tunnel) grant(n int64) {
	if n > 0 {
		t.leg.peer.out.Grant(t.leg.id, n)
	}
}

// leave takes the tunnel out of its link's connections when it is over. The agent
// is told, unless it knows.
func (t *Tunnel) leave(from state, e event, reason wire.Reason) {
	tell := from != delivering && e != evEndpointClosed && e != evLinkLost
	if t.leg.peer.unregister(t.leg.id, t, tell) && tell {
		if reason == wire.ReasonCanceled {
			reason = wire.ReasonAborted
		}
		t.leg.peer.sendClose(t.leg.id, reason)
	}
}

// interrupt frees the tunnel's goroutine from a call of the frontend: at once if
// the client is gone, else after a moment.
func (t *Tunnel) interrupt(now bool) {
	if now {
		t.front.Interrupt()
		return
	}
	time.AfterFunc(interruptGrace, func() {
		select {
		case <-t.detached:
		default:
			t.front.Interrupt()
		}
	})
}
