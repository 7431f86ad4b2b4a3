package relay

import (
	"errors"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// tunnel is the tunnel registered under id, or nil.
func (p *Peer) tunnel(id wire.ConnectionID) *Tunnel {
	p.mu.Lock()
	t := p.tunnels[id]
	p.mu.Unlock()
	return t
}

// Data is data from an endpoint. It is queued for the client, or thrown away if
// the client is gone. Data for a connection that nobody knows makes the agent
// close it.
func (p *Peer) Data(pk wire.Packet) {
	n := int64(pk.Payload.Len())
	if pk.Mismatched || pk.ConnectionID == 0 || n == 0 {
		pk.Payload.Free()
		return
	}
	t := p.tunnel(pk.ConnectionID)
	if t == nil {
		pk.Payload.Free()
		p.disown(pk.ConnectionID)
		return
	}
	if !t.receive(n) {
		pk.Payload.Free()
		return
	}
	switch err := t.leg.down.Push(pk.Payload); {
	case err == nil:
	case errors.Is(err, flow.ErrFull):
		p.dataFull(t, pk.Payload)
	default:
		t.unwanted(pk.Payload, err)
	}
}

// receive takes note of n bytes that came down, and reports whether the client
// is to get them. More than the agent had credit for ends the tunnel.
func (t *Tunnel) receive(n int64) bool {
	t.mu.Lock()
	s := t.state
	var err error
	grant := int64(0)
	if t.window != nil && s != over {
		if err = t.window.Received(n); err == nil && s.discards() {
			grant = t.consume(n)
		}
	}
	t.mu.Unlock()
	if err != nil {
		t.apply(evBroken, End{wire.ReasonCreditViolation, "the agent sent more than it had been granted"})
		return false
	}
	t.grant(grant)
	return !s.discards()
}

// dataFull is Data for a full queue: the reader waits, for as long as this tunnel
// may make it wait.
func (p *Peer) dataFull(t *Tunnel, payload wire.Payload) {
	if t.window != nil {
		// It keeps to its credit, so only items that do not merge can be the cause.
		payload.Free()
		t.apply(evBroken, End{wire.ReasonProtocolError, "too many small packets"})
		return
	}
	obs := p.relay.obs
	obs.ReaderBlocked(+1)
	wait := t.stalls.left(time.Now(), p.relay.cfg.StuckTunnelTimeout)
	waited, err := t.leg.down.PushWait(payload, wait)
	t.stalls.add(time.Now(), waited)
	obs.ReaderBlocked(-1)
	switch {
	case err == nil:
	case errors.Is(err, flow.ErrFull):
		payload.Free()
		t.apply(evBroken, End{wire.ReasonStuck, "the client does not read and stalls the other tunnels of its agent"})
	default:
		t.unwanted(payload, err)
	}
}

// unwanted drops data that the queue refused for the cause with which it was
// closed.
func (t *Tunnel) unwanted(payload wire.Payload, cause error) {
	payload.Free()
	if errors.Is(cause, errEndpointDone) {
		t.apply(evBroken, End{wire.ReasonProtocolError, "data behind the endpoint's half-close"})
	}
}

// CloseResponse says that the endpoint's connection is closed: by itself, or
// because it was asked for. The agent has forgotten the connection ID.
func (p *Peer) CloseResponse(pk wire.Packet) {
	if pk.Mismatched {
		return
	}
	p.mu.Lock()
	t := p.tunnels[pk.ConnectionID]
	if t != nil {
		delete(p.tunnels, pk.ConnectionID)
		p.load.Add(-1)
	} else {
		delete(p.unacknowledged, pk.ConnectionID)
	}
	p.mu.Unlock()
	if t == nil {
		return
	}
	end := End{Text: pk.Error}
	switch {
	case p.ext.Has(wire.ExtReason):
		end.Reason = pk.Reason
	case pk.Error != "":
		end.Reason = wire.ReasonOther
	}
	t.apply(evEndpointClosed, end)
}

// HalfClosed says that the endpoint sends no more.
func (p *Peer) HalfClosed(pk wire.Packet) {
	if pk.Mismatched || !p.ext.Has(wire.ExtHalfClose) {
		return
	}
	t := p.tunnel(pk.ConnectionID)
	switch {
	case t == nil:
	case !t.leg.canHalf:
		t.apply(evBroken, End{wire.ReasonProtocolError, "a half-close that was not agreed to"})
	default:
		t.apply(evEndpointHalf, End{})
	}
}

// Credit lets a tunnel send more to its endpoint.
func (p *Peer) Credit(pk wire.Packet) {
	if pk.Mismatched || !p.ext.Has(wire.ExtCredit) {
		return
	}
	t := p.tunnel(pk.ConnectionID)
	if t == nil {
		return
	}
	if err := t.leg.sender.AddCredit(pk.Window); err != nil {
		t.apply(evBroken, End{wire.ReasonCreditViolation, "the agent granted credit that makes no sense"})
		return
	}
	t.mu.Lock()
	t.up.credited(time.Now())
	t.mu.Unlock()
}
