package backend

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Backend is a connected agent's link, as routing sees it. The methods are
// called for every choice, concurrently and with the router's lock held for
// reading: they must be cheap, must not block and must not call the router.
type Backend interface {
	comparable
	// Load is the outstanding work: open tunnels plus weighted pending dials.
	Load() int64
	// Draining reports that the agent asked for no new dials.
	Draining() bool
	// Suspect reports that the agent left a dial unanswered and has been silent since.
	Suspect() bool
}

// Config is a router's configuration.
type Config struct {
	// Strategies in the order in which they are asked; Default alone if empty.
	// A repeat has no effect.
	Strategies []Strategy
	// FailureZone is the server's own zone; "" makes all zones alike.
	FailureZone string
	// Rand is a source of random bits, safe for concurrent use; math/rand/v2's
	// if nil.
	Rand func() uint64
}

// Router chooses a backend for a destination. All methods are safe for
// concurrent use. A choice takes the lock for reading, as a rule for much less
// than a microsecond; joining and leaving take it for writing, for a time that
// grows with the number of the backend's identifiers, not with that of backends.
type Router[B Backend] struct {
	// Fixed after construction.
	zone       string
	rand       func() uint64
	strategies []Strategy

	// Guarded by mu.
	mu       sync.RWMutex
	managers []manager[B] // parallel to strategies
	backends []int        // how many have a seat there; parallel to strategies
	entries  map[B]*entry[B]
}

// New returns a router without backends.
func New[B Backend](cfg Config) *Router[B] {
	r := &Router[B]{zone: cfg.FailureZone, rand: cfg.Rand, entries: map[B]*entry[B]{}}
	if r.rand == nil {
		r.rand = rand.Uint64
	}
	if len(cfg.Strategies) == 0 {
		cfg.Strategies = []Strategy{Default}
	}
	for _, s := range cfg.Strategies {
		if !slices.Contains(r.strategies, s) {
			r.strategies = append(r.strategies, s)
			r.managers = append(r.managers, newManager[B](s))
		}
	}
	r.backends = make([]int, len(r.managers))
	return r
}

// Join makes b a candidate in every manager whose identifiers it presents, at
// once: no choice sees it in one manager and not in another. Joining again
// replaces what b presented before.
func (r *Router[B]) Join(b B, m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(b)
	r.join(b, m)
}

// Leave takes b out of every manager at once. It reports whether b was joined.
func (r *Router[B]) Leave(b B) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leave(b)
}

// Replace is Leave(old) and Join(b, m) in one step, for an agent that has come
// back: no choice finds neither of them. old need not be joined.
func (r *Router[B]) Replace(old, b B, m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leave(old)
	r.leave(b)
	r.join(b, m)
}

func (r *Router[B]) join(b B, m Member) {
	e := &entry[B]{backend: b, member: m, in: make([]bool, len(r.managers))}
	if r.zone != "" && m.Identifiers.FailureZone != r.zone {
		e.zone = far
	}
	for i, manager := range r.managers {
		before := len(e.seats)
		manager.join(e)
		if e.in[i] = len(e.seats) > before; e.in[i] {
			r.backends[i]++
		}
	}
	r.entries[b] = e
}

func (r *Router[B]) leave(b B) bool {
	e := r.entries[b]
	if e == nil {
		return false
	}
	delete(r.entries, b)
	for i, seat := range e.seats {
		seat.set.remove(e, i)
		seat.set.owner.left(seat.set, e)
	}
	for i, in := range e.in {
		if in {
			r.backends[i]--
		}
	}
	return true
}

// Count is the size of one manager.
type Count struct {
	Strategy Strategy
	// Keys is the number of distinct keys, which the metric ready_backends shows
	// (COMPAT 5.1): agent IDs for default and defaultRoute, hosts, addresses and
	// patterns for destHost, prefixes for destCIDR.
	Keys int
	// Backends is the number of links that the manager may choose.
	Backends int
}

// Counts is the size of every manager, in the order of the strategies.
func (r *Router[B]) Counts() []Count {
	r.mu.RLock()
	defer r.mu.RUnlock()
	counts := make([]Count, len(r.managers))
	for i, m := range r.managers {
		counts[i] = Count{Strategy: r.strategies[i], Keys: m.keys(), Backends: r.backends[i]}
	}
	return counts
}

// Ready reports whether any manager has a backend; draining and suspect ones count.
func (r *Router[B]) Ready() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Max(r.backends) > 0
}

// Len is the number of joined backends, those that no manager takes included.
func (r *Router[B]) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.entries)
}
