package fleet

import (
	"cmp"
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Status is a fleet at one moment, for people.
type Status struct {
	Servers  int // how many there are, as far as it is known
	Links    []LinkStatus
	Failures []Failure // the last one of each address that has no link since
	Leaving  bool
}

// LinkStatus is one link.
type LinkStatus struct {
	ServerID     string
	Host         string
	Address      string
	Since        time.Time
	LastReceived time.Time
	MinRTT       time.Duration // zero if unknown
	Extensions   wire.Extensions
	Draining     bool // the server wants it to end
}

// Failure is the last failed attempt on an address.
type Failure struct {
	Address string
	When    time.Time
	Text    string
}

// Ready reports whether any server has a link.
func (f *Fleet) Ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all) > 0
}

// Status describes the fleet.
func (f *Fleet) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Servers: f.plan.count, Leaving: f.plan.stopped}
	for h := range f.all {
		s.Links = append(s.Links, LinkStatus{
			ServerID:     h.id,
			Host:         h.link.Target().Host,
			Address:      h.link.Target().Address,
			Since:        h.link.Since(),
			LastReceived: h.link.LastReceived(),
			MinRTT:       h.link.MinRTT(),
			Extensions:   h.link.Extensions(),
			Draining:     h.draining,
		})
	}
	for _, failure := range f.failures {
		s.Failures = append(s.Failures, failure)
	}
	slices.SortFunc(s.Links, func(a, b LinkStatus) int {
		return cmp.Or(cmp.Compare(a.ServerID, b.ServerID), a.Since.Compare(b.Since))
	})
	slices.SortFunc(s.Failures, func(a, b Failure) int { return cmp.Compare(a.Address, b.Address) })
	return s
}

// maxFailures bounds the addresses whose failures are kept.
const maxFailures = 100

// noteFailure keeps a failure for people. mu is held.
func (f *Fleet) noteFailure(now time.Time, t serverlink.Target, err error) {
	if len(f.failures) >= maxFailures {
		clear(f.failures)
	}
	f.failures[t] = Failure{Address: t.Address, When: now, Text: err.Error()}
}
