package relay

import "time"

// stallWindow is the time in which the waits that one tunnel causes add up.
const stallWindow = time.Minute

// stalls remembers how long a tunnel made its link's reader wait in the last
// minute, to a second and in fixed memory. A wait counts as if all of it had been
// at its end. The zero value is ready.
type stalls struct {
	start  time.Time
	newest int // number of the newest slot since start
	slot   *[stallWindow / time.Second]time.Duration
}

// left is how much of limit is left at time now.
func (s *stalls) left(now time.Time, limit time.Duration) time.Duration {
	if s.slot == nil {
		return limit
	}
	s.advance(now)
	for _, d := range s.slot {
		limit -= d
	}
	return limit
}

// add takes note of a wait that has just ended.
func (s *stalls) add(now time.Time, waited time.Duration) {
	if waited <= 0 {
		return
	}
	if s.slot == nil {
		s.start, s.slot = now, new([stallWindow / time.Second]time.Duration)
	}
	s.advance(now)
	s.slot[s.newest%len(s.slot)] += waited
}

// advance empties the slots between the newest and the one of now.
func (s *stalls) advance(now time.Time) {
	n := max(s.newest, int(now.Sub(s.start)/time.Second))
	for range min(n-s.newest, len(s.slot)) {
		s.newest++
		s.slot[s.newest%len(s.slot)] = 0
	}
	s.newest = n
}
