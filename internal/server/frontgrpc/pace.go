package frontgrpc

import (
	"sync"
	"time"
)

// pacePeriod is for how long a delay is remembered at least; it is forgotten
// after two of them.
const pacePeriod = 5 * time.Second

// pace is how slow things have been lately, on this machine and its clients'. Safe
// for concurrent use.
type pace struct {
	mu sync.Mutex
	// Guarded by mu.
	began        time.Time // of the present period
	worst, older time.Duration
}

// note takes in how long something took that takes no time on an idle machine.
func (p *pace) note(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	p.worst = max(p.worst, d)
}

// lately is the longest of what was noted in the last two periods.
func (p *pace) lately() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn()
	return max(p.worst, p.older)
}

// turn begins a new period when it is time. mu is held.
func (p *pace) turn() {
	now := time.Now()
	switch age := now.Sub(p.began); {
	case age >= 2*pacePeriod:
		p.worst, p.older, p.began = 0, 0, now
	case age >= pacePeriod:
		p.worst, p.older, p.began = 0, p.worst, now
	}
}
