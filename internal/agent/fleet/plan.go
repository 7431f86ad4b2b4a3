package fleet

import (
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// plan decides when to attempt what. It is pure: time, chance and everything
// that happens come from outside.
//
// While fewer servers have a link than there are, it is in fast sync: an attempt
// every interval, in turns over all addresses, those without a link first. An
// address that fails has a backoff of its own. Fast sync ends only when for five
// minutes, and for ten attempts per server, nobody but known servers was met.
// Then attempts become rare, until anything changes.
type plan struct {
	// Fixed after construction.
	interval, limit, quiet time.Duration
	forever                bool
	chance                 func() float64

	count   int
	links   map[string]facts // by server ID; the links that count
	targets []serverlink.Target
	turn    int                        // index of the target that is next
	seen    map[serverlink.Target]bool // all that there ever were, more or less
	trouble map[serverlink.Target]backoff
	brief   map[serverlink.Target]time.Duration // delay after a link that was over at once
	busy    bool                                // an attempt is under way
	stopped bool                                // no attempts any more

	began time.Time     // fast sync, or what changed last
	known int           // attempts since then that met a server with a link
	pace  time.Duration // between attempts, now
	due   time.Time     // of the next attempt
}

// facts are what the plan wants to know of a link.
type facts struct {
	target serverlink.Target
	tells  bool // its server would tell if the count changed
}

// backoff is the trouble with one address.
type backoff struct {
	delay time.Duration // that was waited last, without jitter
	until time.Time
}

// When fast sync ends.
const (
	fastSync          = 5 * time.Minute
	attemptsPerServer = 10
)

// step is what a plan says: attempt now, or look again at a time, or (the zero
// step) when something happens.
type step struct {
	attempt bool
	until   time.Time
}

func newPlan(cfg Config, chance func() float64, now time.Time) *plan {
	return &plan{
		interval: cfg.SyncInterval,
		limit:    cfg.SyncIntervalCap,
		quiet:    cfg.QuietInterval,
		forever:  cfg.SyncForever,
		chance:   chance,
		count:    1,
		links:    make(map[string]facts),
		seen:     make(map[serverlink.Target]bool),
		trouble:  make(map[serverlink.Target]backoff),
		brief:    make(map[serverlink.Target]time.Duration),
		began:    now,
		pace:     cfg.SyncInterval,
		due:      now,
	}
}

// missing reports whether a server has no link.
func (p *plan) missing() bool { return len(p.links) < p.count }

// next says what to do at time now.
func (p *plan) next(now time.Time) step {
	if p.stopped || p.busy || !p.missing() && !p.forever {
		return step{}
	}
	due := p.due
	if free := p.firstFree(); free.After(due) {
		due = free
	}
	if now.Before(due) {
		return step{until: due}
	}
	return step{attempt: true}
}

// firstFree is when the first of the known addresses has no backoff any more.
func (p *plan) firstFree() time.Time {
	var first time.Time
	for i, t := range p.targets {
		if until := p.trouble[t].until; i == 0 || until.Before(first) {
			first = until
		}
	}
	return first
}

// start takes in the addresses that there are, and chooses one for an attempt
// that begins now. It reports false if there is none to be tried now.
func (p *plan) start(now time.Time, targets []serverlink.Target) (serverlink.Target, bool) {
	p.setTargets(now, targets)
	for _, linked := range []bool{false, true} {
		for i := range p.targets {
			at := (p.turn + i) % len(p.targets)
			t := p.targets[at]
			if p.linked(t) == linked && !now.Before(p.trouble[t].until) {
				p.turn = at + 1
				p.busy = true
				return t, true
			}
		}
	}
	return serverlink.Target{}, false
}

// linked reports whether a link goes to t.
func (p *plan) linked(t serverlink.Target) bool {
	for _, l := range p.links {
		if l.target == t {
			return true
		}
	}
	return false
}

// setTargets takes in the addresses. The first turn begins anywhere, so that not
// all agents ask the same server first. One that was never there before is a
// change; DNS that shows now these and now those is none.
func (p *plan) setTargets(now time.Time, targets []serverlink.Target) {
	if slices.Equal(p.targets, targets) {
		return
	}
	first := len(p.targets) == 0
	p.targets = targets
	if len(p.seen) > maxSeen {
		clear(p.seen)
		clear(p.trouble)
		clear(p.brief)
	}
	fresh := false
	for _, t := range targets {
		fresh = fresh || !p.seen[t]
		p.seen[t] = true
	}
	switch {
	case first:
		p.turn = int(p.chance() * float64(len(targets)))
	case fresh:
		p.changed(now)
	}
}

// maxSeen bounds what is remembered of addresses that are gone.
const maxSeen = 1000

// failed ends an attempt that gave no link.
func (p *plan) failed(now time.Time, t serverlink.Target) {
	p.busy = false
	b := p.trouble[t]
	b.delay = p.longer(b.delay)
	b.until = now.Add(p.jittered(b.delay))
	p.trouble[t] = b
	p.due = now.Add(p.jittered(p.interval))
	if b.until.Before(p.due) {
		p.due = b.until
	}
}

// longer is the delay after one that was not enough.
func (p *plan) longer(delay time.Duration) time.Duration {
	return min(max(delay*3/2, p.interval), p.limit)
}

// duplicate ends an attempt that met a server that has a link.
func (p *plan) duplicate(now time.Time, t serverlink.Target) {
	p.busy = false
	delete(p.trouble, t)
	p.known++
	if !p.forever && now.Sub(p.began) >= fastSync && p.known >= attemptsPerServer*p.count {
		p.slowDown()
	}
	p.due = now.Add(p.jittered(p.pace))
}

// slowDown makes attempts rarer.
func (p *plan) slowDown() {
	for _, l := range p.links {
		if !l.tells {
			p.pace = min(p.pace*3/2, p.limit)
			return
		}
	}
	p.pace = max(p.quiet, p.limit)
	if p.quiet < 0 {
		p.pace = never
	}
}

// never is longer than any process runs.
const never = 100 * 365 * 24 * time.Hour

// kept ends an attempt that gave a link.
func (p *plan) kept(now time.Time, serverID string, f facts) {
	p.busy = false
	p.links[serverID] = f
	p.changed(now)
	p.due = now.Add(p.jittered(p.pace))
}

// idle ends an attempt that was not made after all.
func (p *plan) idle(now time.Time) {
	p.busy = false
	p.due = now.Add(p.jittered(p.pace))
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
	p.changed(now)
	return true
}

// changed begins a new fast sync: something is different from what the last
// attempts met. The next attempt comes within an interval, at a moment that
// differs from agent to agent, since the others may have seen the same.
func (p *plan) changed(now time.Time) {
	p.began, p.known, p.pace = now, 0, p.interval
	clear(p.trouble)
	if soon := now.Add(time.Duration(p.chance() * float64(p.interval))); soon.Before(p.due) || p.due.Before(now) {
		p.due = soon
	}
}

// jittered is d and up to a tenth more.
func (p *plan) jittered(d time.Duration) time.Duration {
	return d + time.Duration(p.chance()*float64(d)/10)
}
