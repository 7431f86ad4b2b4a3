package endpoint

import "time"

// stalls adds up how long one connection has made its link's reader wait within
// the last minute, to a second. The zero value is ready.
type stalls struct {
	slots  *[stallSlots]time.Duration // nil until it waits for the first time
	newest int64                      // number of the newest slot, in seconds of the Unix time
}

const (
	stallSlot  = time.Second
	stallSlots = 60
)

// allowance is how long the reader may wait now if it may wait for limit within
// a minute.
func (s *stalls) allowance(now time.Time, limit time.Duration) time.Duration {
	if s.slots == nil {
		return limit
	}
	s.advance(now)
	for _, d := range s.slots {
		limit -= d
	}
	return max(limit, 0)
}

// add takes note of a wait that has ended now.
func (s *stalls) add(now time.Time, waited time.Duration) {
	if waited <= 0 {
		return
	}
	if s.slots == nil {
		s.slots = new([stallSlots]time.Duration)
		s.newest = second(now)
	}
	s.advance(now)
	s.slots[s.newest%stallSlots] += waited
}

// advance empties the slots between the newest and the one of now.
func (s *stalls) advance(now time.Time) {
	n := max(s.newest, second(now))
	for range min(n-s.newest, stallSlots) {
		s.newest++
		s.slots[s.newest%stallSlots] = 0
	}
	s.newest = n
}

func second(t time.Time) int64 { return t.UnixNano() / int64(stallSlot) }
