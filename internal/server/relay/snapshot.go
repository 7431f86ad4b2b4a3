package relay

import (
	"cmp"
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Snapshot describes the relay at one moment, for the status page.
type Snapshot struct {
	Peers   []PeerStatus   // by agent ID and age
	Tunnels []TunnelStatus // by age, oldest first; dials among them
}

// PeerStatus describes one link.
type PeerStatus struct {
	Info       PeerInfo
	Extensions wire.Extensions
	Load       int64
	Tunnels    int // that the agent serves
	Pending    int // dials that it has not answered
	Draining   bool
	Suspect    bool
}

// TunnelStatus describes one tunnel or pending dial.
type TunnelStatus struct {
	Request      Request
	ConnectionID wire.ConnectionID // 0 while dialling
	Peer         PeerInfo          // zero while dialling
	Since        time.Time         // when the client asked
	Opened       time.Time         // when the agent's answer came; zero while dialling
	State        string
	BytesUp      int64 // taken from the client
	BytesDown    int64 // given to the client
	QueuedUp     int64 // wait for the agent's link
	QueuedDown   int64 // wait for the client
}

// Snapshot describes all peers and tunnels. Each is looked at by itself, so the
// sums need not agree.
func (r *Relay) Snapshot() Snapshot {
	r.mu.Lock()
	tunnels := r.all()
	peers := make([]*Peer, 0, len(r.peers))
	for p := range r.peers {
		peers = append(peers, p)
	}
	r.mu.Unlock()
	s := Snapshot{Peers: make([]PeerStatus, len(peers)), Tunnels: make([]TunnelStatus, len(tunnels))}
	for i, p := range peers {
		s.Peers[i] = p.status()
	}
	for i, t := range tunnels {
		s.Tunnels[i] = t.status()
	}
	slices.SortFunc(s.Peers, func(a, b PeerStatus) int {
		return cmp.Or(cmp.Compare(a.Info.AgentID, b.Info.AgentID), a.Info.Since.Compare(b.Info.Since))
	})
	slices.SortFunc(s.Tunnels, func(a, b TunnelStatus) int { return a.Since.Compare(b.Since) })
	return s
}

func (p *Peer) status() PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PeerStatus{
		Info:       p.info,
		Extensions: p.ext,
		Load:       p.load.Load(),
		Tunnels:    len(p.tunnels),
		Pending:    len(p.dials),
		Draining:   p.draining.Load(),
		Suspect:    p.suspect.Load(),
	}
}

func (t *Tunnel) status() TunnelStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := TunnelStatus{
		Request:   t.req,
		Since:     t.since,
		State:     t.state.String(),
		BytesUp:   t.up.accepted,
		BytesDown: t.bytesDown.Load(),
	}
	if t.established.Load() {
		s.ConnectionID, s.Peer, s.Opened = t.leg.id, t.leg.peer.info, t.leg.opened
		s.QueuedUp, s.QueuedDown = t.leg.sender.Queued(), t.leg.down.Len()
	}
	return s
}
