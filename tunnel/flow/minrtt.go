package flow

import "time"

// Of MinRTT: the sliding 10 s are ten slots of a second and the one that is
// being filled.
const (
	slotLength = time.Second
	slots      = 11
)

// MinRTT is the shortest of the round trips of the last 10 s (to a second), in
// fixed memory. The zero value is ready. Not safe for concurrent use.
type MinRTT struct {
	base   time.Time // of the first sample
	newest int64     // number of the newest slot since base
	known  bool
	last   time.Duration // the latest sample
	slot   [slots]time.Duration
}

// Add takes in a sample measured at time now. A sample that is not positive is
// ignored; time must not go backwards.
func (m *MinRTT) Add(now time.Time, sample time.Duration) {
	if sample <= 0 {
		return
	}
	if !m.known {
		m.known, m.base = true, now
	}
	m.advance(now)
	s := &m.slot[m.newest%slots]
	if *s == 0 || sample < *s {
		*s = sample
	}
	m.last = sample
}

// Min is the shortest round trip at time now. If there was no sample lately it
// is the latest one, and zero if there never was one.
func (m *MinRTT) Min(now time.Time) time.Duration {
	if !m.known {
		return 0
	}
	m.advance(now)
	var shortest time.Duration
	for _, s := range m.slot {
		if s != 0 && (shortest == 0 || s < shortest) {
			shortest = s
		}
	}
	if shortest == 0 {
		return m.last
	}
	return shortest
}

// advance empties the slots between the newest and the one of now.
func (m *MinRTT) advance(now time.Time) {
	n := max(m.newest, int64(now.Sub(m.base)/slotLength))
	for range min(n-m.newest, slots) {
		m.newest++
		m.slot[m.newest%slots] = 0
	}
	m.newest = n
}
