package lease

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestValidityByWallClock is COMPAT 6.3, for a lease that is seen for the first time.
func TestValidityByWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		at := func(d time.Duration) *metav1.MicroTime { m := metav1.NewMicroTime(now.Add(d)); return &m }
		sec := func(n int32) *int32 { return &n }
		for _, c := range []struct {
			name              string
			renewed, acquired *metav1.MicroTime
			seconds           *int32
			want              bool
		}{
			{"fresh", at(0), nil, sec(30), true},
			{"just before its end", at(-30*time.Second + time.Microsecond), nil, sec(30), true},
			{"at its end", at(-30 * time.Second), nil, sec(30), false},
			{"long over", at(-time.Hour), nil, sec(30), false},
			{"from the future", at(time.Hour), nil, sec(30), true},
			{"acquired only", nil, at(-time.Second), sec(30), true},
			{"acquired long ago", nil, at(-time.Hour), sec(30), false},
			{"renewTime goes before acquireTime", at(-time.Hour), at(0), sec(30), false},
			{"no time", nil, nil, sec(30), false},
			{"no duration", at(0), nil, nil, false},
			{"no length", at(0), nil, sec(0), false},
			{"negative", at(time.Hour), nil, sec(-5), false},
			{"nothing", nil, nil, nil, false},
		} {
			l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: c.renewed, AcquireTime: c.acquired, LeaseDurationSeconds: c.seconds}}
			if got := newTracker().observe(l, now).valid(now); got != c.want {
				t.Errorf("%s: valid %v", c.name, got)
			}
		}
	})
}

// TestValidityByLocalClock: the holder's clock is an hour behind or ahead.
func TestValidityByLocalClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTracker()
			expect := func(what string, valid, abandoned bool) {
				t.Helper()
				s := tr.seen[Name("a")]
				if got := s.valid(time.Now()); got != valid {
					t.Errorf("skew %v, %s: valid %v", skew, what, got)
				}
				if got := s.abandoned(time.Now()); got != abandoned {
					t.Errorf("skew %v, %s: abandoned %v", skew, what, got)
				}
			}
			observe := func() { tr.observe(server("a", time.Now().Add(skew)), time.Now()) }
			ahead := skew > 0
			observe()
			expect("first sight", ahead, false)
			elapse(15 * time.Second)
			observe()
			expect("renewed before our eyes", true, false)
			elapse(30*time.Second - time.Nanosecond)
			expect("almost over", true, false)
			tr.observe(server("a", time.Now().Add(skew-30*time.Second+time.Nanosecond)), time.Now()) // the same again
			elapse(time.Nanosecond)
			expect("over", ahead, !ahead)
			if ahead {
				elapse(time.Hour)
				expect("over by both", false, true)
			}
			observe()
			expect("back", true, false)
			tr.forget(Name("a"))
			observe()
			expect("forgotten and seen first", ahead, false)
		})
	}
}

func TestAnotherObjectUnderTheNameIsAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, old := newTracker(), server("a", time.Now().Add(-time.Hour))
		old.UID = "1"
		tr.observe(old, time.Now())
		old.UID = "2"
		if s := tr.observe(old, time.Now()); !s.valid(time.Now()) {
			t.Error("a lease that was made anew is not valid")
		}
	})
}

func TestReplaceForgetsTheRest(t *testing.T) {
	now := time.Now()
	tr := newTracker()
	tr.observe(server("a", now), now)
	tr.replace([]*coordinationv1.Lease{server("b", now)}, now)
	if len(tr.seen) != 1 || tr.seen[Name("b")] == nil {
		t.Errorf("seen %v", tr.seen)
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   int
		reason string
	}{
		{nil, 200, ""},
		{forbidden(), 403, "Forbidden"},
		{fmt.Errorf("wrapped: %w", forbidden()), 403, "Forbidden"},
		{errors.New("connection refused"), 0, ""},
	} {
		if code, reason := outcome(c.err); code != c.code || reason != c.reason {
			t.Errorf("%v: %d %q", c.err, code, reason)
		}
	}
}

func TestParseLabels(t *testing.T) {
	got, err := ParseLabels(" k8s-app = konnectivity-server ,tier=x,empty=")
	if err != nil || len(got) != 3 || got["k8s-app"] != "konnectivity-server" || got["tier"] != "x" || got["empty"] != "" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", ",", "a", "a=b,", "a=b=c", "=x", "a b=c", "a=b c"} {
		if _, err := ParseLabels(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for s, ok := range map[string]bool{"": true, "a=b": true, "a in (b,c),!d": true, "a=b=c": false, "a in b": false} {
		if err := CheckSelector(s); (err == nil) != ok {
			t.Errorf("selector %q: %v", s, err)
		}
	}
}
