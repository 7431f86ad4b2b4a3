package servercounter

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// ReceivedConfig is the configuration of a Received counter.
type ReceivedConfig struct {
	// Fallback is the number before any server has answered; 1 if 0.
	Fallback int
	// Retain is how long an answer outlives the last link to its server; 60 s if 0.
	Retain time.Duration
	// Changed is called when the number has become another, from the goroutine
	// that caused it or from a timer, with no lock held. May be nil.
	Changed func()
}

// Received counts by what servers say: the largest of the last answers of
// distinct servers, since servers differ while they roll. An answer holds while
// a link to its server lives, and for Retain after. Safe for concurrent use.
type Received struct {
	// Fixed after construction.
	cfg ReceivedConfig

	// Guarded by mu.
	mu      sync.Mutex
	answers map[string]*answer // by server ID
	timer   *time.Timer        // runs out with the next answer to be forgotten
	told    int                // the number as of the last change
	closed  bool
}

// answer is what one server said last.
type answer struct {
	count int
	links int
	until time.Time // when to forget it, if links is 0
}

// NewReceived returns a counter without answers.
func NewReceived(cfg ReceivedConfig) *Received {
	if cfg.Fallback == 0 {
		cfg.Fallback = 1
	}
	if cfg.Retain == 0 {
		cfg.Retain = time.Minute
	}
	return &Received{cfg: cfg, answers: map[string]*answer{}, told: cfg.Fallback}
}

// CountServers returns the number.
func (r *Received) CountServers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count()
}

// Answered notes what a server said: in a handshake, a duplicate's included, or
// over a live link. A count below 1 means "unknown" and stands for one server.
// It returns the number before and after, for a log line.
func (r *Received) Answered(serverID string, count int) (before, after int) {
	return r.change(serverID, func(a *answer) { a.count = max(1, count) })
}

// LinkUp notes a live link to a server, LinkDown its end. There may be several.
func (r *Received) LinkUp(serverID string) {
	r.change(serverID, func(a *answer) { a.links++ })
}

// LinkDown notes the end of a link that LinkUp has noted.
func (r *Received) LinkDown(serverID string) {
	r.change(serverID, func(a *answer) { a.links = max(0, a.links-1) })
}

// Close stops the timer; Changed is no longer called.
func (r *Received) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// Answer is one server's last answer, for people.
type Answer struct {
	ServerID string
	Count    int // 0 if it has not said yet
	Links    int
}

// Answers lists the answers that count, by server ID.
func (r *Received) Answers() []Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(time.Now())
	list := make([]Answer, 0, len(r.answers))
	for id, a := range r.answers {
		list = append(list, Answer{id, a.count, a.links})
	}
	slices.SortFunc(list, func(a, b Answer) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return list
}

// change applies f to a server's answer and calls Changed if the number changed.
func (r *Received) change(serverID string, f func(*answer)) (before, after int) {
	now := time.Now()
	r.mu.Lock()
	before = r.count()
	a := r.answers[serverID]
	if a == nil {
		a = &answer{}
		r.answers[serverID] = a
	}
	f(a)
	a.until = now.Add(r.cfg.Retain)
	after = r.count()
	r.arm(now)
	changed := r.news(after)
	r.mu.Unlock()
	if changed {
		r.cfg.Changed()
	}
	return before, after
}

// expire is called by the timer.
func (r *Received) expire() {
	now := time.Now()
	r.mu.Lock()
	r.forget(now)
	r.arm(now)
	changed := r.news(r.count())
	r.mu.Unlock()
	if changed {
		r.cfg.Changed()
	}
}

// news reports whether Changed is to be called for n.
func (r *Received) news(n int) bool {
	changed := n != r.told
	r.told = n
	return changed && !r.closed && r.cfg.Changed != nil
}

func (r *Received) count() int {
	r.forget(time.Now())
	n := 0
	for _, a := range r.answers {
		n = max(n, a.count)
	}
	if n == 0 {
		return r.cfg.Fallback
	}
	return n
}

func (r *Received) forget(now time.Time) {
	for id, a := range r.answers {
		if a.links == 0 && !now.Before(a.until) {
			delete(r.answers, id)
		}
	}
}

// arm sets the timer to the next answer without a link.
func (r *Received) arm(now time.Time) {
	var next time.Time
	for _, a := range r.answers {
		if a.links == 0 && (next.IsZero() || a.until.Before(next)) {
			next = a.until
		}
	}
	switch {
	case r.closed || next.IsZero():
		if r.timer != nil {
			r.timer.Stop()
		}
	case r.timer == nil:
		r.timer = time.AfterFunc(next.Sub(now), r.expire)
	default:
		r.timer.Reset(next.Sub(now))
	}
}
