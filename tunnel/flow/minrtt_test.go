package flow

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestMinRTT(t *testing.T) {
	var m MinRTT
	at := func(s float64) time.Time { return time.Unix(5000, 0).Add(time.Duration(s * float64(time.Second))) }
	if m.Min(at(0)) != 0 {
		t.Error("a minimum of nothing")
	}
	m.Add(at(0), 0)
	m.Add(at(0), -time.Second)
	if m.Min(at(0)) != 0 {
		t.Error("samples that are not positive count")
	}
	m.Add(at(0), 30*time.Millisecond)
	m.Add(at(0.5), 10*time.Millisecond)
	m.Add(at(4), 20*time.Millisecond)
	for _, c := range []struct {
		at   float64
		want time.Duration
	}{{4, 10}, {9.9, 10}, {10.5, 10}, {11.5, 20}, {13.9, 20}, {15.5, 20}, {100, 20}} {
		if got := m.Min(at(c.at)); got != c.want*time.Millisecond {
			t.Errorf("at %v s: %v, want %d ms", c.at, got, c.want)
		}
	}
	m.Add(at(101), 50*time.Millisecond)
	if got := m.Min(at(101)); got != 50*time.Millisecond {
		t.Errorf("an old sample counts: %v", got)
	}
	m.Add(at(100.5), 5*time.Millisecond) // late, but it is a sample
	if got := m.Min(at(101)); got != 5*time.Millisecond {
		t.Errorf("got %v", got)
	}
}

// TestMinRTTModel compares with all samples remembered.
func TestMinRTTModel(t *testing.T) {
	type sample struct {
		at  time.Duration
		rtt time.Duration
	}
	start := time.Unix(0, 0)
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var m MinRTT
		var all []sample
		now := time.Duration(0)
		for range 200 {
			now += time.Duration(rnd.Int64N(int64(2 * time.Second)))
			s := sample{now, 1 + time.Duration(rnd.Int64N(int64(time.Second)))}
			all = append(all, s)
			m.Add(start.Add(now), s.rtt)
			got := m.Min(start.Add(now))
			var surely, perhaps time.Duration // of the last 10 s, of the last 11
			for _, s := range all {
				if now-s.at < 10*time.Second && (surely == 0 || s.rtt < surely) {
					surely = s.rtt
				}
				if now-s.at < 11*time.Second && (perhaps == 0 || s.rtt < perhaps) {
					perhaps = s.rtt
				}
			}
			if got > surely || got < perhaps {
				t.Fatalf("seed %d at %v: %v, want between %v and %v", seed, now, got, perhaps, surely)
			}
		}
	}
}
