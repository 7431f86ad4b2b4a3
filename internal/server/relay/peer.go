package relay

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// PeerInfo identifies one link. Fixed for its life.
type PeerInfo struct {
	AgentID  string
	Instance string // "" for an old agent
	Slot     string
	Address  string // remote address
	Since    time.Time
}

// dialWeight is what a pending dial counts in Load: it may become a tunnel and is
// work that the agent has not shown to master yet.
const dialWeight = 2

// maxUnacknowledged bounds Peer.unacknowledged. An agent that leaves more closes
// than this unanswered is only asked again when it should not have to be.
const maxUnacknowledged = 1 << 14

// Peer is the relay's side of one agent link: its pending dials and tunnels. The
// packet methods are called by the link's reader and never block, except Data on
// a link without credit (bounded by StuckTunnelTimeout). They own the packet.
// Everything else is safe for concurrent use.
type Peer struct {
	// Fixed after construction.
	relay *Relay
	out   Outlet
	ext   wire.Extensions
	info  PeerInfo
	// drained is closed when the agent drains.
	drained chan struct{}

	// Atomic.
	load     atomic.Int64
	draining atomic.Bool
	suspect  atomic.Bool

	mu sync.Mutex
	// Guarded by mu.
	gone    bool
	dials   map[wire.DialID]*attempt
	tunnels map[wire.ConnectionID]*Tunnel // until the agent's part is over
	// unacknowledged are the connections that the agent was told to close and
	// that no tunnel stands for; what comes of them is thrown away.
	unacknowledged map[wire.ConnectionID]struct{}
	recent         recentIDs // of dials that were withdrawn
}

// Attach makes a link known to the relay. Routing is the caller's business.
func (r *Relay) Attach(o Outlet, info PeerInfo) *Peer {
	p := &Peer{
		relay:          r,
		out:            o,
		ext:            o.Extensions(),
		info:           info,
		drained:        make(chan struct{}),
		dials:          map[wire.DialID]*attempt{},
		tunnels:        map[wire.ConnectionID]*Tunnel{},
		unacknowledged: map[wire.ConnectionID]struct{}{},
	}
	r.mu.Lock()
	r.peers[p] = struct{}{}
	r.mu.Unlock()
	return p
}

// Heard notes that the agent sent anything at all: it is no longer suspect.
func (p *Peer) Heard() {
	if p.suspect.Load() {
		p.suspect.Store(false)
	}
}

// Drain marks the peer as draining. Its pending dials go elsewhere if they can.
func (p *Peer) Drain() {
	if p.draining.CompareAndSwap(false, true) {
		close(p.drained)
	}
}

// Load is open tunnels plus weighted pending dials.
func (p *Peer) Load() int64 { return p.load.Load() }

// Draining reports that the agent asked for no new dials.
func (p *Peer) Draining() bool { return p.draining.Load() }

// Suspect reports that the agent left a dial unanswered and has been silent since.
func (p *Peer) Suspect() bool { return p.suspect.Load() }

// Info identifies the link.
func (p *Peer) Info() PeerInfo { return p.info }

// Outlet is the link's sending side, as it was attached.
func (p *Peer) Outlet() Outlet { return p.out }

// Tunnels is the number of tunnels that the agent serves.
func (p *Peer) Tunnels() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.tunnels)
}

// ask sends a DIAL_REQ for t and returns the attempt, or nil if the link is gone.
func (p *Peer) ask(t *Tunnel, outcomes chan outcome) *attempt {
	a := &attempt{tunnel: t, peer: p, outcome: outcomes}
	pk := wire.Packet{Type: wire.DialRequest, Protocol: t.req.Protocol, Address: t.req.Address}
	if p.ext.Has(wire.ExtCredit) {
		a.window = p.relay.cfg.newWindow()
		pk.Window = a.window.Size()
	}
	pk.CanHalfClose = t.req.CanHalfClose && p.ext.Has(wire.ExtHalfClose)
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		a.release()
		return nil
	}
	a.id = p.freeDialID(t.req.DialID)
	pk.DialID = a.id
	p.dials[a.id] = a
	p.load.Add(dialWeight)
	p.mu.Unlock()
	p.out.Send(pk)
	return a
}

// freeDialID is wish, which people find in the client's logs too, if a dial on
// this link can have it. A dial that was withdrawn lately may still be answered,
// and its answer must not be taken for another's. mu is held.
func (p *Peer) freeDialID(wish wire.DialID) wire.DialID {
	for id := wish; ; id = p.relay.NewDialID() {
		if id > 0 && p.dials[id] == nil && !p.recent.has(id) {
			return id
		}
	}
}

// take removes an attempt from the pending ones. mu is held.
func (p *Peer) take(a *attempt) {
	delete(p.dials, a.id)
	p.load.Add(-dialWeight)
}

// withdraw gives an attempt up and tells the agent. It reports false if the
// attempt has an outcome already, or is about to.
func (p *Peer) withdraw(a *attempt) bool {
	p.mu.Lock()
	if p.dials[a.id] != a {
		p.mu.Unlock()
		return false
	}
	p.take(a)
	p.recent.add(a.id)
	p.mu.Unlock()
	a.release()
	p.out.Send(wire.Packet{Type: wire.DialClose, DialID: a.id})
	return true
}

// release gives back what the attempt was charged for.
func (a *attempt) release() {
	if a.window != nil {
		a.window.Release()
	}
}

// Lost ends all dials and tunnels of the link, once.
func (p *Peer) Lost(err error) {
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return
	}
	p.gone = true
	dials, tunnels := p.dials, p.tunnels
	p.dials, p.tunnels, p.unacknowledged = nil, nil, nil
	p.load.Add(-int64(dialWeight*len(dials) + len(tunnels)))
	p.mu.Unlock()
	p.relay.mu.Lock()
	delete(p.relay.peers, p)
	p.relay.mu.Unlock()

	if err == nil {
		err = errors.New("the agent ended it")
	}
	failure := &wire.DialError{Reason: wire.ReasonBackendLost, Err: fmt.Errorf("the agent's link was lost during the dial: %w", err)}
	for _, a := range dials {
		a.release()
		a.outcome <- outcome{err: failure, retry: true}
	}
	for _, t := range tunnels {
		t.apply(evLinkLost, End{wire.ReasonLinkLost, "the agent's link was lost: " + err.Error()})
	}
}
