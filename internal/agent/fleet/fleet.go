package fleet

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Fleet is all links of one agent. Safe for concurrent use.
type Fleet struct {
	// Fixed after construction.
	cfg  Config
	deps Deps
	obs  Observer
	log  klog.Logger
	wake chan struct{} // has room for one; never closed

	wg sync.WaitGroup // attempts, links and closings

	// Guarded by mu.
	mu       sync.Mutex
	plan     *plan
	active   map[string]*held   // by server ID: the link to each server that counts
	all      map[*held]struct{} // also those whose servers drain
	failures map[serverlink.Target]Failure
	alone    chan struct{} // closed when the last link is over; nil if nobody waits
}

// New returns a fleet without links.
func New(cfg Config, deps Deps) *Fleet {
	setDefault(&cfg.SyncInterval, time.Second)
	setDefault(&cfg.SyncIntervalCap, max(10*time.Second, cfg.SyncInterval))
	if deps.Observer == nil {
		deps.Observer = nopObserver{}
	}
	if deps.Chance == nil {
		deps.Chance = rand.Float64
	}
	return &Fleet{
		cfg:      cfg,
		deps:     deps,
		obs:      deps.Observer,
		log:      cfg.Logger,
		wake:     make(chan struct{}, 1),
		plan:     newPlan(cfg, deps.Chance, time.Now()),
		active:   make(map[string]*held),
		all:      make(map[*held]struct{}),
		failures: make(map[serverlink.Target]Failure),
	}
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d <= 0 {
		*d = def
	}
}

// closeGrace is how long links have to send what is queued when Run ends.
const closeGrace = time.Second

// Run connects until ctx ends; then it closes all links, and returns when they
// are gone. Call it once.
func (f *Fleet) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait := f.act(ctx, time.Now())
		timer.Reset(wait)
		select {
		case <-f.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	f.plan.stopped = true
	for h := range f.all {
		f.close(h, closeGrace)
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// act does what the plan says and returns when to ask it again at the latest:
// counters that change without a word are asked every interval.
func (f *Fleet) act(ctx context.Context, now time.Time) time.Duration {
	n := f.deps.Counter.CountServers()
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.plan.count
	if f.plan.setCount(now, n) {
		f.log.Info("Number of servers changed", "before", before, "now", f.plan.count, "links", len(f.active))
	}
	f.obs.Known(f.plan.count)
	s := f.plan.next(now)
	wait := f.cfg.SyncInterval
	switch {
	case s.attempt:
		f.plan.looking = true
		f.wg.Go(func() { f.round(ctx) })
	case !s.until.IsZero():
		wait = min(wait, max(s.until.Sub(now), 0))
	}
	return wait
}

// Wake makes the fleet ask its counter again at once. It never blocks, and may be
// called from a counter.
func (f *Fleet) Wake() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// round looks up the addresses and attempts one of them, if the plan wants that.
func (f *Fleet) round(ctx context.Context) {
	targets := f.deps.Directory.Targets(ctx)
	f.mu.Lock()
	t, ok := f.plan.start(time.Now(), targets)
	f.mu.Unlock()
	f.Wake()
	if !ok {
		return
	}
	defer f.Wake()
	l, err := f.deps.Connector.Connect(ctx, t)
	if err != nil {
		f.attemptFailed(ctx, t, err)
		return
	}
	before, after := f.deps.Received.Answered(l.ServerID(), l.ServerCount())
	f.logAnswer(l.ServerID(), before, after)
	f.settle(l)
}

func (f *Fleet) attemptFailed(ctx context.Context, t serverlink.Target, err error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan.failed(now, t)
	if ctx.Err() != nil {
		return
	}
	f.obs.AttemptFailed()
	f.noteFailure(now, t, err)
	f.log.Info("Cannot connect to a server", "address", t.Address, "reason", err.Error(), "retryIn", f.plan.retryIn(now, t).Round(time.Millisecond))
}

func (f *Fleet) logAnswer(serverID string, before, after int) {
	if before != after {
		f.log.Info("A server gives another number of servers", "serverID", serverID, "before", before, "now", after)
	}
}

// settle decides what becomes of a new link. An agent keeps the link it has to a
// server, unless that is dead or its server wants to be left (DESIGN 4.5).
func (f *Fleet) settle(l Link) {
	now := time.Now()
	id := l.ServerID()
	f.mu.Lock()
	old := f.active[id]
	switch {
	case f.plan.stopped:
		f.plan.dropped(l.Target())
		f.mu.Unlock()
		l.Drop()
		return
	case old != nil && !old.dead(now):
		f.plan.duplicate(now, l.Target())
		f.mu.Unlock()
		f.obs.AttemptDuplicate()
		f.log.V(4).Info("Server has a link already", "serverID", id, "address", l.Target().Address)
		l.Drop()
		return
	}
	h := &held{fleet: f, link: l, id: id}
	f.active[id] = h
	f.all[h] = struct{}{}
	delete(f.failures, l.Target())
	f.plan.kept(now, id, facts{target: l.Target(), tells: l.Extensions().Has(wire.ExtServerCount)})
	if old != nil {
		f.log.Info("Replacing a silent link", "serverID", id, "lastReceived", old.link.LastReceived())
		f.close(old, 0)
	}
	f.obs.AttemptConnected()
	f.obs.Connected(len(f.all))
	f.log.Info("Connected to a server", "serverID", id, "address", l.Target().Address, "extensions", l.Extensions(), "links", len(f.active), "servers", f.plan.count)
	f.wg.Go(h.serve)
	f.mu.Unlock()
}

// close ends a link, without waiting for it. mu is held.
func (f *Fleet) close(h *held, grace time.Duration) {
	f.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		h.link.Close(ctx)
	})
}
