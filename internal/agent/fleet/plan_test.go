package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// table runs a plan in the time of a test, event by event.
type table struct {
	t   *testing.T
	now time.Time
	*plan
	targets []serverlink.Target
}

func newTable(t *testing.T, cfg Config, addresses ...string) *table {
	t.Helper()
	if cfg.SyncInterval == 0 {
		cfg.SyncInterval = time.Second
	}
	if cfg.SyncIntervalCap == 0 {
		cfg.SyncIntervalCap = 10 * time.Second
	}
	if len(addresses) == 0 {
		addresses = []string{"lb"}
	}
	tb := &table{t: t, now: time.Unix(1e9, 0)}
	for _, a := range addresses {
		tb.targets = append(tb.targets, serverlink.Target{Host: a, Address: a + ":1"})
	}
	tb.plan = newPlan(cfg, func() float64 { return 0 }, tb.now)
	return tb
}

// attempt waits for the next attempt, checks how long that takes, and returns
// what is tried. Rounds without an attempt may lie before it.
func (tb *table) attempt(after time.Duration) serverlink.Target {
	tb.t.Helper()
	began := tb.now
	for {
		s := tb.next(tb.now)
		switch {
		case s.attempt:
			target, ok := tb.start(tb.now, tb.targets)
			if took := tb.now.Sub(began); ok && took != after || took > after {
				tb.t.Fatalf("%v after %v, want an attempt after %v", target, took, after)
			}
			if ok {
				return target
			}
		case s.until.IsZero():
			tb.t.Fatalf("no attempt, want one after %v", after)
		case !s.until.After(tb.now):
			tb.t.Fatalf("told to look again at %v, which is past", s.until)
		}
		tb.now = s.until
	}
}

// none checks that nothing is attempted by itself.
func (tb *table) none() {
	tb.t.Helper()
	if s := tb.next(tb.now); s != (step{}) {
		tb.t.Fatalf("step %+v, want none", s)
	}
}

func (tb *table) pass(d time.Duration) { tb.now = tb.now.Add(d) }

func (tb *table) keep(id string, target serverlink.Target, tells bool) {
	tb.kept(tb.now, id, facts{target: target, tells: tells})
}

// TestBackoff: 1 s, times 1.5 up to the cap, and from the start after a success.
func TestBackoff(t *testing.T) {
	tb := newTable(t, Config{})
	target := tb.attempt(0)
	for _, d := range []float64{1, 1.5, 2.25, 3.375, 5.0625, 7.59375, 10, 10, 10} {
		tb.failed(tb.now, target)
		tb.attempt(time.Duration(d * float64(time.Second)))
	}
	tb.keep("a", target, true)
	tb.none()
	tb.pass(time.Hour)
	tb.lost(tb.now, "a", time.Hour)
	target = tb.attempt(0)
	tb.failed(tb.now, target)
	tb.attempt(time.Second)
}

// TestOneServerBecomesFour is the history of issue "fast sync": from the change
// on attempts come every interval, not every cap.
func TestOneServerBecomesFour(t *testing.T) {
	tb := newTable(t, Config{})
	target := tb.attempt(0)
	for range 10 { // the way to the first server was long
		tb.failed(tb.now, target)
		tb.now = tb.trouble[target].until
		tb.start(tb.now, tb.targets)
	}
	tb.keep("a", target, false)
	for range 1000 {
		tb.pass(time.Second)
		tb.none()
	}
	if !tb.setCount(tb.now, 4) {
		t.Fatal("no news")
	}
	tb.attempt(0)
	for range 100 { // a load balancer that leads to the same server again and again
		tb.duplicate(tb.now, target)
		tb.attempt(time.Second)
	}
	tb.keep("b", target, false)
	tb.attempt(time.Second)
	tb.keep("c", target, false)
	tb.attempt(time.Second)
	tb.keep("d", target, false)
	tb.none()
}

// TestDuplicatesWithNewCount: a server that has a link says that there are more.
func TestDuplicatesWithNewCount(t *testing.T) {
	tb := newTable(t, Config{SyncForever: true})
	target := tb.attempt(0)
	tb.keep("a", target, false)
	tb.attempt(time.Second)
	tb.duplicate(tb.now, target)
	tb.setCount(tb.now, 2)
	tb.attempt(0)
}

// TestSyncForever attempts every interval, for ever.
func TestSyncForever(t *testing.T) {
	tb := newTable(t, Config{SyncForever: true})
	target := tb.attempt(0)
	tb.keep("a", target, true)
	for range 2000 {
		tb.attempt(time.Second)
		tb.duplicate(tb.now, target)
	}
}

// TestAddressesInTurns: each server behind its own address has its link within
// an interval of the one before; an address that is dead costs little.
func TestAddressesInTurns(t *testing.T) {
	tb := newTable(t, Config{}, "a", "b", "c")
	tb.setCount(tb.now, 3)
	for i, want := range []string{"a", "b", "c"} {
		target := tb.attempt(min(time.Duration(i), 1) * time.Second)
		if target.Host != want {
			t.Fatalf("tried %s, want %s", target.Host, want)
		}
		tb.keep(want, target, true)
	}
	tb.none()
	tb.pass(time.Hour)
	tb.lost(tb.now, "b", time.Hour)
	if target := tb.attempt(0); target.Host != "b" {
		t.Errorf("tried %s although only b has no link", target.Host)
	}
}

func TestDeadAddress(t *testing.T) {
	tb := newTable(t, Config{}, "a", "dead", "lb")
	tb.setCount(tb.now, 4)
	target := tb.attempt(0)
	tb.keep("a", target, true)
	dead := tb.attempt(time.Second)
	tb.failed(tb.now, dead)
	lb := tb.attempt(time.Second)
	tb.keep("b", lb, true)
	// All others are behind lb, which has a link, and dead is tried in between.
	tried := map[string]int{}
	for range 100 {
		target := tb.attempt(time.Second)
		tried[target.Host]++
		if target == dead {
			tb.failed(tb.now, target)
		} else {
			tb.duplicate(tb.now, target)
		}
	}
	if tried["dead"] < 8 || tried["dead"] > 16 || tried["lb"] < 35 || tried["a"] < 35 {
		t.Errorf("tried %v in 100 s", tried)
	}
}

// TestFirstTurnDiffers between agents.
func TestFirstTurnDiffers(t *testing.T) {
	tb := newTable(t, Config{}, "a", "b", "c", "d")
	tb.chance = func() float64 { return 0.6 }
	if target := tb.attempt(0); target.Host != "c" {
		t.Errorf("tried %s", target.Host)
	}
}

// TestBriefLinks: a server that ends its links at once is asked less and less
// often; the first time may have been bad luck.
func TestBriefLinks(t *testing.T) {
	tb := newTable(t, Config{})
	target := tb.attempt(0)
	tb.keep("a", target, true)
	tb.pass(100 * time.Millisecond)
	tb.lost(tb.now, "a", 100*time.Millisecond)
	for _, want := range []float64{0, 1, 1.5, 2.25, 3.375} {
		tb.attempt(time.Duration(want * float64(time.Second)))
		tb.keep("a", target, true)
		tb.pass(100 * time.Millisecond)
		tb.lost(tb.now, "a", 100*time.Millisecond)
	}
	tb.now = tb.trouble[target].until
	tb.attempt(0)
	tb.keep("a", target, true)
	tb.pass(time.Minute)
	tb.lost(tb.now, "a", time.Minute)
	tb.attempt(0)
}

// TestShrinking: links beyond the count are kept, but not replaced.
func TestShrinking(t *testing.T) {
	tb := newTable(t, Config{})
	tb.setCount(tb.now, 3)
	for i, id := range []string{"a", "b", "c"} {
		target := tb.attempt(min(time.Duration(i), 1) * time.Second)
		tb.keep(id, target, true)
	}
	tb.setCount(tb.now, 1)
	tb.none()
	tb.lost(tb.now, "a", time.Hour)
	tb.lost(tb.now, "b", time.Hour)
	tb.none()
	tb.lost(tb.now, "c", time.Hour)
	tb.dropped(tb.attempt(0))
	tb.setCount(tb.now, -5)
	if tb.count != 1 {
		t.Errorf("count %d for an unknown one", tb.count)
	}
}

// TestStopped: nothing is attempted any more, whatever happens.
func TestStopped(t *testing.T) {
	tb := newTable(t, Config{SyncForever: true})
	target := tb.attempt(0)
	tb.keep("a", target, true)
	tb.stopped = true
	tb.lost(tb.now, "a", time.Hour)
	tb.setCount(tb.now, 9)
	tb.pass(time.Hour)
	tb.none()
}

// TestJitter: a thousand agents that lost one server at the same moment come
// back spread over an interval, and stay spread.
func TestJitter(t *testing.T) {
	slots := map[int]int{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		tb := newTable(t, Config{})
		tb.chance = random.Float64
		target := tb.attempt(0)
		tb.keep("a", target, true)
		tb.pass(time.Hour)
		lost := tb.now
		tb.lost(tb.now, "a", time.Hour)
		for tb.now.Sub(lost) < 5*time.Second {
			s := tb.next(tb.now)
			if !s.attempt {
				tb.now = s.until
				continue
			}
			if _, ok := tb.start(tb.now, tb.targets); ok {
				slots[int(tb.now.Sub(lost)/(100*time.Millisecond))]++
				tb.failed(tb.now, target)
			}
		}
	}
	for slot, n := range slots {
		if n > 200 {
			t.Errorf("%d of 1000 agents come within 100 ms, %d00 ms after the loss", n, slot)
		}
	}
	if slots[0]+slots[1]+slots[2] == 0 {
		t.Error("nobody comes soon")
	}
}
