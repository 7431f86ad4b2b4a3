package backend

import (
	"math/bits"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Limits of a choice in a long list, so that it costs the same in any.
const (
	smallList = 16 // up to this length a list is looked through from end to end
	probes    = 16 // random probes in a longer one before it is
)

// Pick chooses a backend for address, the host:port of a dial. Backends that
// skip reports are not chosen whatever happens; skip may be nil, and must not
// block nor call the router. ok is false if no manager has a backend left.
func (r *Router[B]) Pick(address string, skip func(B) bool) (b B, ok bool) {
	host := wire.CanonicalHost(address)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, m := range r.managers {
		for s, c := m.next(host, start); s != nil; s, c = m.next(host, c) {
			if b, ok = r.choose(s, skip); ok {
				return b, true
			}
		}
	}
	return b, false
}

// choose takes the best of one set.
func (r *Router[B]) choose(s *set[B], skip func(B) bool) (B, bool) {
	for _, list := range s.lists {
		if b, ok := r.healthy(list, skip); ok {
			return b, true
		}
	}
	return r.lastResort(s, skip)
}

// healthy is the lesser loaded of two random backends of list that are neither
// draining nor suspect.
func (r *Router[B]) healthy(list []place[B], skip func(B) bool) (b B, ok bool) {
	var two pair[B]
	if len(list) > smallList {
		if r.probe(list, skip, &two); two.n > 0 {
			return two.lesser(r.rand), true
		}
		// Few or none are healthy. The first two behind a random place will do.
		from := r.intn(len(list))
		for i := range list {
			if b := list[(from+i)%len(list)].backend; rank(b) == 0 && !skips(skip, b) {
				if two.add(b, r.rand); two.n == 2 {
					break
				}
			}
		}
	} else {
		for i := range list {
			if b := list[i].backend; rank(b) == 0 && !skips(skip, b) {
				two.add(b, r.rand)
			}
		}
	}
	if two.n == 0 {
		return b, false
	}
	return two.lesser(r.rand), true
}

// probe looks at random places of list until it has two healthy backends.
func (r *Router[B]) probe(list []place[B], skip func(B) bool, two *pair[B]) {
	first := -1
	for range probes {
		i := r.intn(len(list))
		if i == first {
			continue
		}
		if b := list[i].backend; rank(b) == 0 && !skips(skip, b) {
			if two.add(b, r.rand); two.n == 2 {
				return
			}
			first = i
		}
	}
}

// lastResort takes the best there is in s. It judges every backend once, so that
// one whose state changes meanwhile is not missed between two rounds.
func (r *Router[B]) lastResort(s *set[B], skip func(B) bool) (b B, ok bool) {
	var two pair[B]
	best := -1
	for z, list := range s.lists {
		for i := range list {
			b := list[i].backend
			if skips(skip, b) {
				continue
			}
			switch worse := rank(b)*len(s.lists) + z; {
			case best < 0 || worse < best:
				best, two = worse, pair[B]{}
				two.add(b, r.rand)
			case worse == best:
				two.add(b, r.rand)
			}
		}
	}
	if two.n == 0 {
		return b, false
	}
	return two.lesser(r.rand), true
}

// rank orders backends by health, 0 being healthy. A draining agent answers; a
// suspect one probably does not.
func rank[B Backend](b B) int {
	switch {
	case b.Suspect():
		return 2
	case b.Draining():
		return 1
	}
	return 0
}

func skips[B any](skip func(B) bool, b B) bool { return skip != nil && skip(b) }

// pair samples two of those that are added, each with the same chance.
type pair[B Backend] struct {
	two [2]B
	n   int // how many were added
}

func (p *pair[B]) add(b B, rand func() uint64) {
	at := p.n
	if p.n++; p.n > len(p.two) {
		if at = intn(rand, p.n); at >= len(p.two) {
			return
		}
	}
	p.two[at] = b
}

// lesser is the lesser loaded of the sample, either if they are alike. n > 0.
func (p *pair[B]) lesser(rand func() uint64) B {
	if p.n == 1 {
		return p.two[0]
	}
	a, b := p.two[0].Load(), p.two[1].Load()
	if a < b || (a == b && rand()&1 == 0) {
		return p.two[0]
	}
	return p.two[1]
}

func (r *Router[B]) intn(n int) int { return intn(r.rand, n) }

// intn is a random number below n, which is positive.
func intn(rand func() uint64, n int) int {
	hi, _ := bits.Mul64(rand(), uint64(n))
	return int(hi)
}
