package endpoint

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Endpoints is what all connections of one agent have in common. Safe for
// concurrent use.
type Endpoints struct {
	// Fixed after construction.
	cfg    Config
	dialer Dialer
	obs    Observer
	chunks chunks

	// Atomic.
	refusing atomic.Bool

	// Guarded by mu.
	mu    sync.Mutex
	busy  int                // pending dials and connections that have not ended
	conns map[*conn]struct{} // those that have not ended
	idle  chan struct{}      // closed when busy becomes 0; nil if nobody waits

	wg sync.WaitGroup // every goroutine of dials and connections
}

// New returns an Endpoints without connections. obs may be nil.
func New(cfg Config, dialer Dialer, obs Observer) *Endpoints {
	if obs == nil {
		obs = NopObserver{}
	}
	return &Endpoints{
		cfg:    cfg.withDefaults(),
		dialer: dialer,
		obs:    obs,
		conns:  make(map[*conn]struct{}),
	}
}

// Refuse makes every later dial fail with ReasonShutdown: the agent is about to
// stop. What is open or being dialled goes on.
func (e *Endpoints) Refuse() { e.refusing.Store(true) }

// quiet is how long a lingering endpoint must be quiet now.
func (e *Endpoints) quiet() time.Duration {
	if e.refusing.Load() {
		return quietLeaving
	}
	return quietTime
}

// WaitIdle waits until no dial is pending and no connection is open, or ctx has
// ended (its error).
func (e *Endpoints) WaitIdle(ctx context.Context) error {
	for {
		e.mu.Lock()
		if e.busy == 0 {
			e.mu.Unlock()
			return nil
		}
		if e.idle == nil {
			e.idle = make(chan struct{})
		}
		idle := e.idle
		e.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close aborts every connection that is left, also those that only linger, and
// waits until all goroutines have ended. The tables must be Lost already.
func (e *Endpoints) Close() {
	e.mu.Lock()
	rest := make([]*conn, 0, len(e.conns))
	for c := range e.conns {
		rest = append(rest, c)
	}
	e.mu.Unlock()
	for _, c := range rest {
		c.apply(evAbort, End{Reason: wire.ReasonShutdown, Text: "agent stopped"})
	}
	e.wg.Wait()
}

// Connections describes every connection that has not ended, in no order.
func (e *Endpoints) Connections() []Info {
	e.mu.Lock()
	conns := make([]*conn, 0, len(e.conns))
	for c := range e.conns {
		conns = append(conns, c)
	}
	e.mu.Unlock()
	infos := make([]Info, len(conns))
	for i, c := range conns {
		infos[i] = c.info()
	}
	return infos
}

// Open is the number of connections that have not ended.
func (e *Endpoints) Open() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.conns)
}

// begin and done count what keeps the agent from being idle: a dial from its
// packet until it has failed, or until its connection has ended.
func (e *Endpoints) begin() {
	e.mu.Lock()
	e.busy++
	e.mu.Unlock()
}

func (e *Endpoints) done() {
	e.mu.Lock()
	e.busy--
	if e.busy == 0 && e.idle != nil {
		close(e.idle)
		e.idle = nil
	}
	e.mu.Unlock()
}

func (e *Endpoints) add(c *conn) {
	e.mu.Lock()
	e.conns[c] = struct{}{}
	e.mu.Unlock()
}

// remove forgets a connection that has ended.
func (e *Endpoints) remove(c *conn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
	e.done()
}
