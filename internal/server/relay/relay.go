package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Relay holds all tunnels of one server. Safe for concurrent use.
type Relay struct {
	// Fixed after construction.
	cfg    Config
	router Router
	obs    Observer

	mu sync.Mutex
	// Guarded by mu.
	tunnels  map[*Tunnel]struct{} // from Open until their goroutines are gone
	pending  int                  // of those, the ones whose dial goes on
	peers    map[*Peer]struct{}   // whose links live
	stopping *End                 // set by Shutdown
	idle     chan struct{}        // closed when tunnels is empty; nil if nobody waits
}

// New returns a relay. obs may be nil.
func New(cfg Config, router Router, obs Observer) *Relay {
	cfg.setDefaults()
	if obs == nil {
		obs = NopObserver{}
	}
	return &Relay{
		cfg:     cfg,
		router:  router,
		obs:     obs,
		tunnels: map[*Tunnel]struct{}{},
		peers:   map[*Peer]struct{}{},
	}
}

// Open starts a tunnel and returns at once. ctx ends the dial only (a client that
// left); after the tunnel is up its adapter uses Close or Abort.
func (r *Relay) Open(ctx context.Context, req Request, f Frontend) *Tunnel {
	t := newTunnel(r, req, f)
	r.mu.Lock()
	t.refused = r.refusal()
	r.tunnels[t] = struct{}{}
	r.pending++
	r.mu.Unlock()
	r.obs.DialPending(+1)
	go t.run(ctx, t.stop)
	return t
}

// refusal is why no further dial is tried, nil as a rule. mu is held.
func (r *Relay) refusal() *wire.DialError {
	switch {
	case r.stopping != nil:
		return shutdownError(*r.stopping)
	case r.pending >= r.cfg.MaxPendingDials:
		return &wire.DialError{Reason: wire.ReasonLimit, Err: errors.New("too many pending dials")}
	case r.cfg.MaxTunnels > 0 && len(r.tunnels) >= r.cfg.MaxTunnels:
		return &wire.DialError{Reason: wire.ReasonLimit, Err: errors.New("too many tunnels")}
	}
	return nil
}

func shutdownError(end End) *wire.DialError {
	text := end.Text
	if text == "" {
		text = "the server is shutting down"
	}
	return &wire.DialError{Reason: wire.ReasonShutdown, Err: errors.New(text)}
}

// dialEnded notes that one dial is no longer pending.
func (r *Relay) dialEnded() {
	r.mu.Lock()
	r.pending--
	r.mu.Unlock()
	r.obs.DialPending(-1)
}

// forget is a tunnel's end.
func (r *Relay) forget(t *Tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.tunnels, t)
	if len(r.tunnels) == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// NewDialID returns a random dial ID, for frontends whose clients choose none.
func (r *Relay) NewDialID() wire.DialID {
	for {
		if id := wire.DialID(rand.Int64()); id != 0 {
			return id
		}
	}
}

// Tunnels is the number of established tunnels.
func (r *Relay) Tunnels() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.tunnels) - r.pending
}

// Pending is the number of dials that wait for an answer.
func (r *Relay) Pending() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending
}

// Shutdown ends every tunnel and pending dial with an answer to its client, tells
// the agents, and waits until all goroutines are gone or ctx ends (its error).
// Dials that come later are refused. An end without a reason is ReasonShutdown.
func (r *Relay) Shutdown(ctx context.Context, end End) error {
	if !end.Abnormal() {
		end.Reason = wire.ReasonShutdown
	}
	r.mu.Lock()
	r.stopping = &end
	all := r.all()
	r.mu.Unlock()
	for _, t := range all {
		t.apply(evBroken, end)
	}
	select {
	case <-r.Idle():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// all is a list of all tunnels. mu is held.
func (r *Relay) all() []*Tunnel {
	all := make([]*Tunnel, 0, len(r.tunnels))
	for t := range r.tunnels {
		all = append(all, t)
	}
	return all
}

// Idle returns a channel that is closed when no tunnel and no dial is left.
func (r *Relay) Idle() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	idle := r.idle
	if idle == nil {
		idle = make(chan struct{})
		if len(r.tunnels) == 0 {
			close(idle)
		} else {
			r.idle = idle
		}
	}
	return idle
}
