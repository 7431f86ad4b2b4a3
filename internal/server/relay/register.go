package relay

import (
	"errors"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// DialResponse is the agent's answer to an attempt. A tunnel is registered before
// anyone hears of it, so that what follows the answer on the link finds it.
func (p *Peer) DialResponse(pk wire.Packet) {
	if pk.Mismatched {
		return
	}
	p.mu.Lock()
	a := p.dials[pk.DialID]
	if a == nil {
		p.mu.Unlock()
		p.lateResponse(&pk)
		return
	}
	p.take(a)
	var out outcome
	switch {
	case pk.Error != "" || pk.Reason != wire.ReasonNone && p.ext.Has(wire.ExtReason):
		out = refusalOf(&pk, p.ext)
	case pk.ConnectionID <= 0 || p.known(pk.ConnectionID):
		// Closing it would close whatever has the ID already.
		err := errors.New("the agent answered with a connection ID that is not usable")
		out = outcome{err: &wire.DialError{Reason: wire.ReasonProtocolError, Err: err}, retry: true}
	case p.register(a, &pk):
	default:
		out = outcome{err: &wire.DialError{Reason: wire.ReasonCanceled}, unwanted: true}
	}
	p.mu.Unlock()
	if out.unwanted {
		p.disown(pk.ConnectionID)
	}
	if out.err != nil {
		a.release()
	}
	a.outcome <- out
}

// register makes the tunnel known under its connection ID, or reports false if it
// was given up meanwhile. mu is held.
func (p *Peer) register(a *attempt, pk *wire.Packet) bool {
	t := a.tunnel
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != dialing {
		return false
	}
	credit, limit := int64(0), p.relay.cfg.OldPeerQueue
	if p.ext.Has(wire.ExtCredit) {
		// The window is the real limit; it never lets more in than this.
		credit, limit = max(0, pk.Window), p.relay.cfg.MaxWindow+a.window.Size()
	}
	t.state = next(t.state, evAnswered)
	t.stop = nil
	t.window = a.window
	t.leg = leg{
		peer:    p,
		id:      pk.ConnectionID,
		sender:  p.out.NewSender(pk.ConnectionID, credit),
		down:    flow.New[wire.Payload](limit),
		canHalf: t.req.CanHalfClose && p.ext.Has(wire.ExtHalfClose),
		opened:  time.Now(),
	}
	t.established.Store(true)
	p.tunnels[pk.ConnectionID] = t
	p.load.Add(1)
	return true
}

// lateResponse is an answer to a dial that is not pending.
func (p *Peer) lateResponse(pk *wire.Packet) {
	p.relay.obs.UnknownDialResponse()
	if pk.Error != "" || pk.ConnectionID <= 0 {
		return
	}
	p.mu.Lock()
	inUse := p.gone || p.known(pk.ConnectionID)
	p.mu.Unlock()
	if !inUse {
		p.disown(pk.ConnectionID)
	}
}

// known reports whether id stands for a connection already. mu is held.
func (p *Peer) known(id wire.ConnectionID) bool {
	_, closing := p.unacknowledged[id]
	return closing || p.tunnels[id] != nil
}

// disown makes the agent close a connection that no tunnel stands for, once.
func (p *Peer) disown(id wire.ConnectionID) {
	if p.unregister(id, nil, true) {
		p.sendClose(id, wire.ReasonAborted)
	}
}

// unregister takes a tunnel, if there is one, out of the link's connections. If
// the agent is to be told to close the connection, it is told first of all here,
// so that what it still sends is thrown away. It reports false if the agent is
// gone or was told already.
func (p *Peer) unregister(id wire.ConnectionID, t *Tunnel, tell bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return false
	}
	if t != nil && p.tunnels[id] == t {
		delete(p.tunnels, id)
		p.load.Add(-1)
	}
	if !tell {
		return true
	}
	if _, told := p.unacknowledged[id]; told {
		return false
	}
	if len(p.unacknowledged) >= maxUnacknowledged {
		clear(p.unacknowledged)
	}
	p.unacknowledged[id] = struct{}{}
	return true
}

// sendClose queues a CLOSE_REQ outside of any tunnel's data.
func (p *Peer) sendClose(id wire.ConnectionID, reason wire.Reason) {
	pk := wire.Packet{Type: wire.CloseRequest, ConnectionID: id}
	if p.ext.Has(wire.ExtReason) {
		pk.Reason = reason
	}
	p.out.Send(pk)
}

// DialClosed is the agent giving up a dial.
func (p *Peer) DialClosed(pk wire.Packet) {
	if pk.Mismatched {
		return
	}
	p.mu.Lock()
	a := p.dials[pk.DialID]
	if a != nil {
		p.take(a)
	}
	p.mu.Unlock()
	if a == nil {
		return
	}
	a.release()
	failure := &wire.DialError{Reason: wire.ReasonBackendLost, Err: errors.New("dial closed by the agent")}
	a.outcome <- outcome{err: failure, retry: true}
}
