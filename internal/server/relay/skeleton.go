package relay

// This file is the agreed surface; the relay's owner replaces it file by file.

import (
	"context"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Config holds the relay's limits. Zero values mean the defaults named here.
type Config struct {
	BackendDialTimeout time.Duration // per attempt; 7 s by flag; 0 here means no limit
	DialAttempts       int           // 3
	DialDeadline       time.Duration // for all attempts together; 29 s (DESIGN 4.4)
	CloseTimeout       time.Duration // 10 s
	StuckTunnelTimeout time.Duration // 10 s
	HalfCloseTimeout   time.Duration // 5 min
	MaxPendingDials    int           // 10000
	MaxTunnels         int           // 0: no limit
	Budget             *flow.Budget
	InitialWindow      int64 // 256 KiB
	MaxWindow          int64 // 16 MiB
	OldPeerQueue       int64 // bytes queued per tunnel of an old agent; 256 KiB
}

// Relay holds all tunnels of one server.
type Relay struct{}

// New returns a relay.
func New(cfg Config, router Router, obs Observer) *Relay { panic("skeleton") }

// Open starts a tunnel and returns at once. ctx ends the dial only (a client that
// left); after the tunnel is up its adapter uses Close or Abort.
func (r *Relay) Open(ctx context.Context, req Request, f Frontend) *Tunnel { panic("skeleton") }

// Attach makes a link known to the relay. Routing is the caller's business.
func (r *Relay) Attach(o Outlet, info PeerInfo) *Peer { panic("skeleton") }

// NewDialID returns a random dial ID, for frontends whose clients choose none.
func (r *Relay) NewDialID() wire.DialID { panic("skeleton") }

// Tunnels is the number of established tunnels; Pending that of pending dials.
func (r *Relay) Tunnels() int { panic("skeleton") }
func (r *Relay) Pending() int { panic("skeleton") }

// Shutdown ends every tunnel and pending dial with an answer to its client and
// waits until their goroutines are gone or ctx ends. Idle returns a channel that
// is closed when no tunnel and no dial is left.
func (r *Relay) Shutdown(ctx context.Context, end End) error { panic("skeleton") }
func (r *Relay) Idle() <-chan struct{}                       { panic("skeleton") }

// Tunnel is one proxied connection. The methods below are for the adapter's
// reading goroutine, unless it says otherwise.
type Tunnel struct{}

// WaitEstablished blocks until the dial has succeeded and the client was told
// (nil), or failed or was given up (the error).
func (t *Tunnel) WaitEstablished() error { panic("skeleton") }

// Established reports, from any goroutine, whether the dial has succeeded.
func (t *Tunnel) Established() bool { panic("skeleton") }

// ConnectionID is valid once established.
func (t *Tunnel) ConnectionID() wire.ConnectionID { panic("skeleton") }

// Write sends the client's data to the endpoint; it blocks for back-pressure and
// takes ownership of p. An error means that the tunnel takes no more.
func (t *Tunnel) Write(p wire.Payload) error { panic("skeleton") }

// CloseWrite says that the client has sent all it will send but still reads.
func (t *Tunnel) CloseWrite() { panic("skeleton") }

// HangUp says from any goroutine that the client has closed both ways, perhaps
// with bytes not read yet by the adapter: data to the client is dropped from now
// on, the close timeout runs, and Close follows when the adapter has read all.
func (t *Tunnel) HangUp() { panic("skeleton") }

// Close is the client's orderly full close, behind all that was written. The
// tunnel goes on alone until the agent has answered; the adapter's reader may return.
func (t *Tunnel) Close() { panic("skeleton") }

// Abort ends the tunnel at once, from any goroutine; during the dial it cancels it.
func (t *Tunnel) Abort(reason wire.Reason, text string) { panic("skeleton") }

// FirstPacketLost tells a frontend that ... (DESIGN 4.3) is handled in frontgrpc's Frontend.Write.

// Done is closed when the tunnel is over and its goroutine no longer uses the Frontend.
func (t *Tunnel) Done() <-chan struct{} { panic("skeleton") }

// Detached is closed when the tunnel's goroutine no longer uses the Frontend,
// which may be long before Done for a client that left in order.
func (t *Tunnel) Detached() <-chan struct{} { panic("skeleton") }

// PeerInfo identifies one link. Fixed for its life.
type PeerInfo struct {
	AgentID  string
	Instance string // "" for an old agent
	Slot     string
	Address  string // remote address
	Since    time.Time
}

// Peer is the relay's side of one agent link: its pending dials and tunnels.
// The packet methods are called by the link's reader and never block, except
// Data on a link without credit (bounded by StuckTunnelTimeout). They own the packet.
type Peer struct{}

func (p *Peer) DialResponse(pk wire.Packet)  { panic("skeleton") }
func (p *Peer) DialClosed(pk wire.Packet)    { panic("skeleton") }
func (p *Peer) Data(pk wire.Packet)          { panic("skeleton") }
func (p *Peer) CloseResponse(pk wire.Packet) { panic("skeleton") }
func (p *Peer) HalfClosed(pk wire.Packet)    { panic("skeleton") }
func (p *Peer) Credit(pk wire.Packet)        { panic("skeleton") }

// Heard notes that the agent sent anything at all: it is no longer suspect.
func (p *Peer) Heard() { panic("skeleton") }

// Drain marks the peer as draining; Lost ends all its dials and tunnels, once.
func (p *Peer) Drain()         { panic("skeleton") }
func (p *Peer) Lost(err error) { panic("skeleton") }

// Load is open tunnels plus weighted pending dials. Safe for concurrent use, like
// Draining, Suspect, Info and Tunnels.
func (p *Peer) Load() int64    { panic("skeleton") }
func (p *Peer) Draining() bool { panic("skeleton") }
func (p *Peer) Suspect() bool  { panic("skeleton") }
func (p *Peer) Info() PeerInfo { panic("skeleton") }
func (p *Peer) Tunnels() int   { panic("skeleton") }
func (p *Peer) Outlet() Outlet { panic("skeleton") }
