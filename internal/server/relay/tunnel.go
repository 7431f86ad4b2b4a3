package relay

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/flow"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// ErrOver is what Write returns once the tunnel takes no more.
var ErrOver = errors.New("the tunnel takes no more data")

// Tunnel is one proxied connection. The methods that take what the client sends
// are for the adapter's reading goroutine, unless they say otherwise.
type Tunnel struct {
	// Fixed after construction.
	relay   *Relay
	req     Request
	front   Frontend
	since   time.Time       // when the client asked
	refused *wire.DialError // the dial is not even tried

	answered chan struct{} // closed when the client has its answer
	detached chan struct{} // closed when front is not used any more
	done     chan struct{} // closed when the tunnel's goroutine is about to end

	// Fixed when answered is closed.
	err error // why there is no tunnel; nil if there is one

	// Fixed when established is set, by the link's reader under mu.
	established atomic.Bool
	leg         leg

	// Atomic.
	bytesDown atomic.Int64 // that the client was given

	// Owned by the link's reader.
	stalls stalls

	mu     sync.Mutex
	change sync.Cond // the tunnel's goroutine waits here for another state
	// Guarded by mu.
	state   state
	end     End           // how it ended; the first abnormal end stays
	stop    chan struct{} // closed when the dial is given up; nil once it is over
	window  *flow.Window  // of what comes down; nil on a link without credit
	writing bool          // the tunnel's goroutine is in a call of front
	up      upload
	watch   watch
}

// leg is a tunnel's way to the endpoint.
type leg struct {
	peer    *Peer
	id      wire.ConnectionID
	sender  Sender
	down    *flow.Queue[wire.Payload] // on its way to the client
	canHalf bool                      // half-closes can be sent and may come
	opened  time.Time
}

func newTunnel(r *Relay, req Request, f Frontend) *Tunnel {
	t := &Tunnel{
		relay:    r,
		req:      req,
		front:    f,
		since:    time.Now(),
		answered: make(chan struct{}),
		detached: make(chan struct{}),
		done:     make(chan struct{}),
		stop:     make(chan struct{}),
	}
	t.change.L = &t.mu
	return t
}

// WaitEstablished blocks until the dial has succeeded and the client was told
// (nil), or failed or was given up (the error). Safe for concurrent use.
func (t *Tunnel) WaitEstablished() error {
	<-t.answered
	return t.err
}

// Established reports, from any goroutine, whether the dial has succeeded. It
// stays true after the end.
func (t *Tunnel) Established() bool { return t.established.Load() }

// ConnectionID is the agent's name for the connection, 0 until it is
// established. Safe for concurrent use, like the methods below.
func (t *Tunnel) ConnectionID() wire.ConnectionID {
	if !t.established.Load() {
		return 0
	}
	return t.leg.id
}

// Request is what the client asked for.
func (t *Tunnel) Request() Request { return t.req }

// Peer is the backend that serves the tunnel, nil until it is established.
func (t *Tunnel) Peer() *Peer {
	if !t.established.Load() {
		return nil
	}
	return t.leg.peer
}

// Opened is when the agent's answer came, zero until then.
func (t *Tunnel) Opened() time.Time {
	if !t.established.Load() {
		return time.Time{}
	}
	return t.leg.opened
}

// DialDuration is the time from the client's wish to the agent's answer, zero
// until then.
func (t *Tunnel) DialDuration() time.Duration {
	if !t.established.Load() {
		return 0
	}
	return t.leg.opened.Sub(t.since)
}

// Bytes is how many bytes were taken from the client (up) and given to it (down).
func (t *Tunnel) Bytes() (up, down int64) {
	t.mu.Lock()
	up = t.up.accepted
	t.mu.Unlock()
	return up, t.bytesDown.Load()
}

// Detached is closed when the tunnel's goroutine no longer uses the Frontend,
// which may be long before Done for a client that left in order.
func (t *Tunnel) Detached() <-chan struct{} { return t.detached }

// Done is closed when the tunnel is over and its goroutine no longer uses the
// Frontend.
func (t *Tunnel) Done() <-chan struct{} { return t.done }
