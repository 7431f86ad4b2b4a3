package relay

import "github.com/culvert-proxy/culvert/tunnel/wire"

// CloseWrite says that the client has sent all it will send but still reads. It
// blocks until the dial is answered. To an agent that cannot be told of it
// nothing is sent; the tunnel goes on, bounded by HalfCloseTimeout.
func (t *Tunnel) CloseWrite() {
	if t.WaitEstablished() == nil {
		t.apply(evClientHalf, End{})
	}
}

// HangUp says from any goroutine that the client has closed both ways, perhaps
// with bytes not read yet by the adapter: data to the client is dropped from now
// on, the close timeout runs, and Close follows when the adapter has read all,
// unless it has called CloseWrite before. A call of the frontend that blocks is
// interrupted. During the dial it cancels it.
func (t *Tunnel) HangUp() {
	t.apply(evClientHungUp, End{})
}

// Close is the client's orderly full close, behind all that was written. The
// tunnel goes on alone until the agent has answered; the adapter's reader may
// return. Unless the client has hung up, its frontend is told when the agent has
// answered. During the dial it cancels it.
func (t *Tunnel) Close() {
	t.apply(evClientClosed, End{})
}

// Abort ends the tunnel at once, from any goroutine; during the dial it cancels
// it. ReasonAborted and ReasonCanceled (what ReasonNone counts as) say that the
// client is gone: then the frontend is interrupted, and a tunnel that was closed
// in order before still delivers what it had accepted. With other reasons the
// client is told.
func (t *Tunnel) Abort(reason wire.Reason, text string) {
	e := evBroken
	switch reason {
	case wire.ReasonNone:
		reason, e = wire.ReasonAborted, evClientLost
	case wire.ReasonAborted, wire.ReasonCanceled:
		e = evClientLost
	}
	t.apply(e, End{reason, text})
}
