package fleet

import (
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// plan decides when to attempt what. It is pure: time, chance and everything
// that happens come from outside.
//
// While fewer servers have a link than there are, it is in fast sync: a round
// every interval, in which the addresses are looked up and one is attempted, in
// turns, those that nobody is known behind first. Fast sync ends only when for
// five minutes, and for ten attempts per server, nobody but known servers was
// met. From then on addresses that lead to known servers are left alone: for
// good if every server would tell of a new count, for the cap otherwise. Any
// change begins a new fast sync.
type plan struct {
	// Fixed after construction.
	interval, limit time.Duration
	forever         bool
	chance          func() float64

	addresses
	count   int
	links   map[string]facts          // by server ID; the links that count
	had     int                       // the most links at once, as far as the count goes
	looking bool                      // the addresses are being looked up for a round
	pending map[serverlink.Target]int // attempts under way
	stopped bool                      // no attempts any more

	began time.Time     // fast sync, or what changed last
	known int           // attempts since then that met a server with a link
	pace  time.Duration // between attempts at known servers behind old ones
	round time.Time     // the next one
	rest  time.Time     // until then rounds leave known servers alone
}

// facts are what the plan wants to know of a link.
type facts struct {
	target serverlink.Target
	tells  bool // its server would tell if the count changed
}

// When fast sync ends, and how rare attempts become then.
const (
	fastSync          = 5 * time.Minute
	attemptsPerServer = 10
	// longestRest is between attempts for a server that had a link and has been
	// gone for hours; until then they come every outagePart of its absence.
	longestRest = 10 * time.Minute
	outagePart  = 32
	// never is longer than any process runs.
	never = 100 * 365 * 24 * time.Hour
)

// maxPending is how many attempts may be under way at once: servers that are
// silent must not keep the agent from the others for as long as their limits are.
const maxPending = 8

// step is what a plan says: a round now, or look again at a time, or (the zero
// step) when something happens.
type step struct {
	attempt bool
	until   time.Time
}

func newPlan(cfg Config, chance func() float64, now time.Time) *plan {
	return &plan{
		interval:  cfg.SyncInterval,
		limit:     cfg.SyncIntervalCap,
		forever:   cfg.SyncForever,
		chance:    chance,
		addresses: newAddresses(),
		count:     1,
		links:     make(map[string]facts),
		pending:   make(map[serverlink.Target]int),
		began:     now,
		pace:      cfg.SyncInterval,
		round:     now,
	}
}

// wanted reports whether a server has no link, or attempts are wanted anyway.
func (p *plan) wanted() bool { return len(p.links) < p.count || p.forever }

// next says what to do at time now. A round begins with start.
func (p *plan) next(now time.Time) step {
	if p.stopped || p.looking || p.underWay() >= maxPending || !p.wanted() {
		return step{}
	}
	if now.Before(p.round) {
		return step{until: p.round}
	}
	return step{attempt: true}
}

func (p *plan) underWay() (n int) {
	for _, k := range p.pending {
		n += k
	}
	return n
}

// start is a round: it takes in the addresses that there are now, and chooses
// one for an attempt. It reports false if there is none to be tried now. Every
// attempt ends with one of kept, duplicate, failed and dropped.
func (p *plan) start(now time.Time, targets []serverlink.Target) (serverlink.Target, bool) {
	p.looking = false
	if p.setTargets(targets, p.chance) {
		p.changed(now)
	}
	if p.stopped || !p.wanted() {
		return serverlink.Target{}, false
	}
	t, ok := p.choose(p.free(now), p.leads)
	if !ok && !now.Before(p.rest) {
		t, ok = p.choose(p.free(now), func(t serverlink.Target) bool { return !p.leads(t) })
	}
	if !ok {
		p.round = p.afterRest(now)
		return t, false
	}
	p.pending[t]++
	p.round = now.Add(p.jittered(p.interval)) // if this attempt is not over by then
	return t, true
}

// free is the test for an address that may be tried. Two attempts at once make
// sense only where more than one server may be.
func (p *plan) free(now time.Time) func(serverlink.Target) bool {
	return func(t serverlink.Target) bool {
		return !now.Before(p.trouble[t].until) && (p.pending[t] == 0 || p.leads(t))
	}
}

// leads reports whether t is known to lead to a server that has a link.
func (p *plan) leads(t serverlink.Target) bool {
	if p.met[t] {
		return true
	}
	for _, l := range p.links {
		if l.target == t {
			return true
		}
	}
	return false
}

// afterRest is when the next round is of use, when this one was of none or fast
// sync is over.
func (p *plan) afterRest(now time.Time) time.Time {
	wait := p.interval
	if now.Before(p.rest) {
		wait = p.limit
	}
	next := now.Add(p.jittered(wait))
	if p.rest.After(now) && p.rest.Before(next) {
		next = p.rest
	}
	for _, t := range p.targets {
		if until := p.trouble[t].until; until.After(now) && until.Before(next) {
			next = until
		}
	}
	return next
}

// dropped ends an attempt whose link is not wanted any more.
func (p *plan) dropped(t serverlink.Target) {
	if p.pending[t]--; p.pending[t] <= 0 {
		delete(p.pending, t)
	}
}

// failed ends an attempt that gave no link. An address has a backoff of its own,
// but not one behind which some servers answer while others fail.
func (p *plan) failed(now time.Time, t serverlink.Target) {
	p.dropped(t)
	if !p.leads(t) || now.Sub(p.began) >= fastSync {
		b := p.trouble[t]
		b.delay = p.longer(b.delay)
		b.until = now.Add(p.jittered(b.delay))
		p.trouble[t] = b
	}
	p.round = now.Add(p.jittered(p.interval))
	if until := p.trouble[t].until; until.After(now) && until.Before(p.round) {
		p.round = until
	}
}

// retryIn is how long it takes at least until t is tried again.
func (p *plan) retryIn(now time.Time, t serverlink.Target) time.Duration {
	at := p.round
	if until := p.trouble[t].until; until.After(at) {
		at = until
	}
	return at.Sub(now)
}

// longer is the delay after one that was not enough.
func (p *plan) longer(delay time.Duration) time.Duration {
	return min(max(delay*3/2, p.interval), p.limit)
}

// duplicate ends an attempt that met a server that has a link.
func (p *plan) duplicate(now time.Time, t serverlink.Target) {
	p.dropped(t)
	delete(p.trouble, t)
	p.met[t] = true
	p.known++
	p.round = now.Add(p.jittered(p.interval))
	if !p.forever && now.Sub(p.began) >= fastSync && p.known >= attemptsPerServer*p.count {
		p.rest = now.Add(p.jittered(p.slower(now)))
		p.round = p.afterRest(now)
	}
}

// slower is how long known servers are left alone after fast sync.
//
// With servers that would tell of a new count there are two reasons why one is
// still missing. If so many never had a link, then the count is too high, and
// there is nobody to be found. If one had a link and lost it, then it is down for
// long, and the count is right; behind a load balancer nothing but an attempt
// shows that it is back.
func (p *plan) slower(now time.Time) time.Duration {
	for _, l := range p.links {
		if !l.tells {
			p.pace = min(p.pace*3/2, p.limit)
			return p.pace
		}
	}
	if len(p.links) >= p.had {
		return never
	}
	return max(p.limit, min(now.Sub(p.began)/outagePart, longestRest))
}

// kept ends an attempt that gave a link.
func (p *plan) kept(now time.Time, serverID string, f facts) {
	p.dropped(f.target)
	p.links[serverID] = f
	p.had = min(max(p.had, len(p.links)), p.count)
	p.changed(now)
	p.round = now.Add(p.jittered(p.interval))
}

// lost says that a link does not count any more: it is over, or its server wants
// it to be. A server whose links live only for moments is not asked all the time.
func (p *plan) lost(now time.Time, serverID string, lived time.Duration) {
	t := p.links[serverID].target
	delete(p.links, serverID)
	p.changed(now)
	if lived >= p.limit {
		delete(p.brief, t)
		return
	}
	if delay, again := p.brief[t]; again {
		p.trouble[t] = backoff{delay: delay, until: now.Add(p.jittered(delay))}
	}
	p.brief[t] = p.longer(p.brief[t])
}

// setCount says how many servers there are and reports whether that is news.
func (p *plan) setCount(now time.Time, n int) bool {
	if n = max(n, 1); n == p.count {
		return false
	}
	p.count = n
	p.had = min(p.had, n)
	p.changed(now)
	return true
}

// changed begins a new fast sync: something is different from what the last
// attempts met. The next round comes within an interval, at a moment that
// differs from agent to agent, since the others may have seen the same.
func (p *plan) changed(now time.Time) {
	p.began, p.known, p.pace, p.rest = now, 0, p.interval, time.Time{}
	clear(p.trouble)
	clear(p.met)
	if soon := now.Add(time.Duration(p.chance() * float64(p.interval))); soon.Before(p.round) || p.round.Before(now) {
		p.round = soon
	}
}

// jittered is d and up to a tenth more.
func (p *plan) jittered(d time.Duration) time.Duration {
	return d + time.Duration(p.chance()*float64(d)/10)
}
