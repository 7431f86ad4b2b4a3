package fleet

import (
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// addresses is what a plan knows of the addresses behind which servers may be.
type addresses struct {
	targets []serverlink.Target
	turn    int                        // index of the target that is next
	seen    map[serverlink.Target]bool // all that there ever were, more or less
	trouble map[serverlink.Target]backoff
	brief   map[serverlink.Target]time.Duration // delay after a link that was over at once
	met     map[serverlink.Target]bool          // a server with a link answered there, in this fast sync
}

// backoff is the trouble with one address.
type backoff struct {
	delay time.Duration // that was waited last, without jitter
	until time.Time
}

// maxSeen bounds what is remembered of addresses that are gone.
const maxSeen = 1000

func newAddresses() addresses {
	return addresses{
		seen:    make(map[serverlink.Target]bool),
		trouble: make(map[serverlink.Target]backoff),
		brief:   make(map[serverlink.Target]time.Duration),
		met:     make(map[serverlink.Target]bool),
	}
}

// setTargets takes in the addresses and reports whether one was never there
// before: that is a change, and DNS that shows now these and now those is none.
// One that is there again has its trouble behind it. The first turn begins
// anywhere, so that not all agents ask the same server first.
func (a *addresses) setTargets(targets []serverlink.Target, chance func() float64) (fresh bool) {
	if slices.Equal(a.targets, targets) {
		return false
	}
	if len(a.seen) > maxSeen {
		clear(a.seen)
		clear(a.trouble)
		clear(a.brief)
		clear(a.met)
	}
	for _, t := range targets {
		if !slices.Contains(a.targets, t) {
			delete(a.trouble, t)
		}
		fresh = fresh || !a.seen[t]
		a.seen[t] = true
	}
	first := len(a.targets) == 0
	a.targets = targets
	if first {
		a.turn = int(chance() * float64(len(targets)))
		return false
	}
	return fresh
}

// choose returns the next address in turn that is free and for which avoid is
// not true.
func (a *addresses) choose(free, avoid func(serverlink.Target) bool) (serverlink.Target, bool) {
	for i := range a.targets {
		at := (a.turn + i) % len(a.targets)
		if t := a.targets[at]; !avoid(t) && free(t) {
			a.turn = at + 1
			return t, true
		}
	}
	return serverlink.Target{}, false
}
