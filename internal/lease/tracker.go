package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
)

// defaultDuration is how long a lease is valid without renewal, and how long one
// that names no usable duration is watched before it is deleted.
const defaultDuration = 30 * time.Second

// terms returns when a lease was renewed last and for how long that holds. A
// lease without either, or with a duration that is not positive, is never valid.
func terms(l *coordinationv1.Lease) (renewed time.Time, duration time.Duration, ok bool) {
	switch {
	case l.Spec.RenewTime != nil:
		renewed = l.Spec.RenewTime.Time
	case l.Spec.AcquireTime != nil:
		renewed = l.Spec.AcquireTime.Time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return renewed, duration, !renewed.IsZero() && duration > 0
}

// tracker remembers how leases were seen to change. Times given to it carry
// the monotonic clock. Not safe for concurrent use.
type tracker struct {
	seen map[string]*sighting // by name
}

// sighting is what is known of one lease.
type sighting struct {
	uid      types.UID
	version  string // resource version, for preconditions
	renewed  time.Time
	duration time.Duration
	usable   bool // renewed and duration are there

	first   time.Time // when it was seen first
	changed time.Time // when it was last seen to have been renewed; zero if never

	// counted is the owner's note of whether the lease is in its number.
	counted bool
}

func newTracker() *tracker { return &tracker{seen: map[string]*sighting{}} }

// observe notes a lease as it is now. The first sight of it tells nothing about
// when it was renewed; a later one with another time, or of another object under
// the same name, does.
func (t *tracker) observe(l *coordinationv1.Lease, now time.Time) *sighting {
	renewed, duration, usable := terms(l)
	s := t.seen[l.Name]
	switch {
	case s == nil:
		s = &sighting{first: now}
		t.seen[l.Name] = s
	case s.uid != l.UID || !s.renewed.Equal(renewed):
		s.changed = now
	}
	s.uid, s.version = l.UID, l.ResourceVersion
	s.renewed, s.duration, s.usable = renewed, duration, usable
	return s
}

// replace notes that list is all there is.
func (t *tracker) replace(list []*coordinationv1.Lease, now time.Time) {
	there := make(map[string]bool, len(list))
	for _, l := range list {
		t.observe(l, now)
		there[l.Name] = true
	}
	for name := range t.seen {
		if !there[name] {
			delete(t.seen, name)
		}
	}
}

func (t *tracker) forget(name string) { delete(t.seen, name) }

// valid reports whether the lease holds, by either clock.
func (s *sighting) valid(now time.Time) bool { return s.usable && s.expiry(now).After(now) }

// expiry is when the lease stops to hold unless it is renewed. Both terms are
// brought onto the local clock, so that the result can be waited for.
func (s *sighting) expiry(now time.Time) time.Time {
	byWall := now.Add(s.renewed.Sub(now.Round(0)) + s.duration) // Round strips the monotonic reading
	if byLocal := s.changed.Add(s.duration); !s.changed.IsZero() && byLocal.After(byWall) {
		return byLocal
	}
	return byWall
}

// abandoned reports whether the lease is expired by both clocks, having stood
// still for its whole duration before our eyes.
func (s *sighting) abandoned(now time.Time) bool {
	watched := s.first
	if s.changed.After(watched) {
		watched = s.changed
	}
	window := s.duration
	if window <= 0 {
		window = defaultDuration
	}
	return !s.valid(now) && now.Sub(watched) >= window
}
