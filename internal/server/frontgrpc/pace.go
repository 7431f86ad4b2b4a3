package frontgrpc

import (
	"sync"
	"time"
)

const (
	// pacePeriod is for how long a delay is remembered at least; it is forgotten
	// after two of them.
	pacePeriod = 5 * time.Second
	// paceUnknown is what reports are assumed to take while none have come for a
	// while: the first clients of a burst all want a processor at once.
	paceUnknown = 30 * time.Millisecond
)

// pace is how slow things have been lately, on this machine and its clients'. Safe
// for concurrent use.
type pace struct {
	mu sync.Mutex
	// Guarded by mu.
	began      time.Time // of the present period
	now, older delays
}

// delays of one period.
type delays struct {
	worst   time.Duration
	reports bool // there were any
}

// late notes how late a timer was.
func (p *pace) late(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	p.now.worst = max(p.now.worst, d)
}

// reported notes how long a report of loss took.
func (p *pace) reported(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	p.now.worst, p.now.reports = max(p.now.worst, d), true
}

// lately is the longest delay of the last two periods, but not less than
// paceUnknown unless the earlier one has shown how long reports take.
func (p *pace) lately() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	d := max(p.now.worst, p.older.worst)
	if !p.older.reports {
		d = max(d, paceUnknown)
	}
	return d
}

// turn begins a new period when it is time. mu is held.
func (p *pace) turn() {
	now := time.Now()
	switch age := now.Sub(p.began); {
	case age >= 2*pacePeriod:
		p.now, p.older, p.began = delays{}, delays{}, now
	case age >= pacePeriod:
		p.now, p.older, p.began = delays{}, p.now, now
	}
}
