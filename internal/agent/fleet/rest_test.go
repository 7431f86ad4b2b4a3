package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/culvert-proxy/culvert/internal/agent/serverlink"
)

// linked is a table with a link to as many servers as tells has entries, one
// fewer than the count.
func linked(t *testing.T, cfg Config, tells ...bool) (*table, serverlink.Target) {
	t.Helper()
	tb := newTable(t, cfg)
	tb.setCount(tb.now, len(tells)+1)
	var target serverlink.Target
	for i, tell := range tells {
		target = tb.attempt(min(time.Duration(i), 1) * tb.interval)
		tb.keep(fmt.Sprint("server", i), target, tell)
	}
	return tb, target
}

// pauses meets known servers at every attempt, for as long as it is given, and
// returns the time before each attempt.
func (tb *table) pauses(target serverlink.Target, d time.Duration) (list []time.Duration) {
	end, before := tb.now.Add(d), tb.now
	for {
		s := tb.next(tb.now)
		if !s.attempt {
			if tb.now = s.until; s.until.IsZero() || s.until.After(end) {
				tb.now = end
				return list
			}
			continue
		}
		if _, ok := tb.start(tb.now, tb.targets); !ok {
			continue
		}
		tb.duplicate(tb.now, target)
		list = append(list, tb.now.Sub(before))
		before = tb.now
	}
}

// TestFastSyncEnds: after five minutes and ten attempts per server attempts are
// rare, but not if the interval is so long that ten were not made.
func TestFastSyncEnds(t *testing.T) {
	sec := time.Second
	for _, tc := range []struct {
		name        string
		cfg         Config
		tells       []bool
		quick       int
		first, last time.Duration // of the pauses in the hour after that; 0 for none
	}{
		{"an old server", Config{}, []bool{false}, 300, 3 * sec / 2, 10 * sec},
		{"one old server of two", Config{}, []bool{true, false}, 300, 3 * sec / 2, 10 * sec},
		{"new servers", Config{}, []bool{true, true}, 300, 0, 0},
		{"no server at all", Config{}, nil, 0, 0, 0},
		{"an attempt a minute", Config{SyncInterval: time.Minute, SyncIntervalCap: 10 * time.Minute}, []bool{true, true}, 30, 0, 0},
		{"ten attempts a second", Config{SyncInterval: sec / 10}, []bool{true}, 3000, 0, 0},
		{"for ever", Config{SyncForever: true}, []bool{true}, 3900, 0, 0},
	} {
		if len(tc.tells) == 0 {
			continue
		}
		tb, target := linked(t, tc.cfg, tc.tells...)
		list := tb.pauses(target, 65*time.Minute)
		quick := 0
		for quick < len(list) && list[quick] == tb.interval {
			quick++
		}
		slow := list[quick:]
		if quick != tc.quick {
			t.Errorf("%s: %d attempts at the interval, want %d", tc.name, quick, tc.quick)
		}
		switch {
		case tc.first == 0 && len(slow) > 0:
			t.Errorf("%s: then pauses %v, want no attempt at all", tc.name, slow)
		case tc.first != 0 && (len(slow) == 0 || slow[0] != tc.first || slow[len(slow)-1] != tc.last):
			t.Errorf("%s: then pauses %v", tc.name, slow)
		}
	}
}

// TestLongOutage: one of three servers behind a load balancer is down. Its
// agents know that it exists, so they look for it for as long as it takes, the
// rarer the longer it has been gone, and have it back soon, as these things go.
func TestLongOutage(t *testing.T) {
	tb, target := linked(t, Config{}, true, true, true)
	tb.setCount(tb.now, 3)
	tb.none()
	tb.pass(time.Hour)
	tb.lost(tb.now, "server1", time.Hour)
	for _, tc := range []struct {
		outage time.Duration // from the last line's
		pause  time.Duration
	}{
		{5 * time.Minute, time.Second},
		{25 * time.Minute, time.Minute},
		{90 * time.Minute, 4 * time.Minute},
		{24 * time.Hour, 10*time.Minute + time.Millisecond},
	} {
		list := tb.pauses(target, tc.outage)
		for _, pause := range list[1:] {
			if pause > tc.pause {
				t.Errorf("%v after the loss: a pause of %v", tc.outage, pause)
			}
		}
		if n := int(tc.outage/tc.pause) * 16; len(list) > n {
			t.Errorf("%v after the loss: %d attempts", tc.outage, len(list))
		}
	}
	tb.pass(10 * time.Minute)
	tb.start(tb.now, tb.targets)
	tb.keep("server1 again", target, true)
	tb.none()

	tb.setCount(tb.now, 4) // nobody has ever seen a fourth
	tb.pauses(target, 6*time.Minute)
	if list := tb.pauses(target, 24*time.Hour); len(list) > 0 {
		t.Errorf("attempts for a server that never was: %v", list)
	}
	tb.setCount(tb.now, 2) // and a lower count forgives a loss
	tb.lost(tb.now, "server0", time.Hour)
	tb.none()
	tb.setCount(tb.now, 3)
	tb.pauses(target, 6*time.Minute)
	if list := tb.pauses(target, 24*time.Hour); len(list) > 0 {
		t.Errorf("attempts for a server that was counted out: %v", list)
	}
}

// TestRestIsOverAtAnyChange, whatever it is.
func TestRestIsOverAtAnyChange(t *testing.T) {
	for name, change := range map[string]func(tb *table){
		"count":     func(tb *table) { tb.setCount(tb.now, 5) },
		"link lost": func(tb *table) { tb.lost(tb.now, "server0", time.Hour) },
	} {
		tb, target := linked(t, Config{}, true, true)
		tb.pauses(target, time.Hour)
		change(tb)
		tb.attempt(0)
		tb.duplicate(tb.now, target)
		tb.attempt(time.Second)
		if name == "count" && tb.setCount(tb.now, 5) {
			t.Error("the same count again is news")
		}
	}
}

// TestRestLooksForAddresses: without a connection to anybody who is known.
func TestRestLooksForAddresses(t *testing.T) {
	tb, lb := linked(t, Config{}, true, true)
	tb.pauses(lb, time.Hour)
	fresh := serverlink.Target{Host: "new", Address: "new:1"}
	tb.targets = []serverlink.Target{lb, fresh}
	var got serverlink.Target
	began := tb.now
	for ok := false; !ok; {
		if s := tb.next(tb.now); !s.attempt {
			tb.now = s.until
			continue
		}
		got, ok = tb.start(tb.now, tb.targets)
	}
	if got != fresh || tb.now.Sub(began) > 10*time.Second {
		t.Fatalf("tried %v after %v", got, tb.now.Sub(began))
	}
	tb.failed(tb.now, fresh)
	tb.failed(tb.now, tb.attempt(time.Second)) // it is a change like any other
	if got := tb.attempt(time.Second); got != lb {
		t.Errorf("tried %v", got)
	}
}

// TestRestTriesAddressesOfNobody: one that nobody is known behind is tried at
// the cap, also when those that lead to known servers are left alone.
func TestRestTriesAddressesOfNobody(t *testing.T) {
	tb := newTable(t, Config{}, "a", "dead")
	tb.setCount(tb.now, 2)
	a := tb.attempt(0)
	tb.keep("a", a, true)
	dead := tb.attempt(time.Second)
	tb.failed(tb.now, dead)
	for tb.now.Sub(tb.began) < time.Hour {
		s := tb.next(tb.now)
		if !s.attempt {
			tb.now = s.until
			continue
		}
		switch got, ok := tb.start(tb.now, tb.targets); {
		case ok && got == a:
			if at := tb.now.Sub(tb.began); at > 6*time.Minute {
				t.Fatalf("the known server was asked after %v", at)
			}
			tb.duplicate(tb.now, a)
		case ok:
			tb.failed(tb.now, dead)
		}
	}
	until := tb.trouble[dead].until
	if wait := until.Sub(tb.now); wait > 10*time.Second {
		t.Errorf("the dead address rests for %v", wait)
	}
	if got := tb.attempt(until.Sub(tb.now)); got != dead {
		t.Errorf("tried %v", got)
	}
	tb.keep("b", dead, true)
	tb.none()
}

// TestLoadBalancerWithDeadServers: while an address leads to some server, its
// failures do not slow down the search for the others.
func TestLoadBalancerWithDeadServers(t *testing.T) {
	tb, lb := linked(t, Config{}, true)
	for range 250 {
		tb.attempt(time.Second)
		tb.failed(tb.now, lb)
	}
	tb.lost(tb.now, "server0", time.Hour) // now it leads to nobody
	tb.attempt(0)
	for _, want := range []float64{1, 1.5, 2.25} {
		tb.failed(tb.now, lb)
		tb.attempt(time.Duration(want * float64(time.Second)))
	}
}

// TestSilentServers hold up nobody: further attempts begin while they last, but
// never many, and never two at an address that nobody is known behind.
func TestSilentServers(t *testing.T) {
	tb := newTable(t, Config{}, "silent", "a", "b")
	tb.setCount(tb.now, 3)
	silent := tb.attempt(0)
	a := tb.attempt(time.Second)
	tb.keep("a", a, true)
	b := tb.attempt(time.Second)
	if silent.Host != "silent" || a.Host != "a" || b.Host != "b" {
		t.Errorf("tried %v, %v, %v", silent, a, b)
	}
	tb.keep("b", b, true)
	for range maxPending - 1 { // a and b may be load balancers; silent is still busy
		if got := tb.attempt(time.Second); got == silent {
			t.Error("a second attempt at an address that may be nobody's")
		}
	}
	tb.none()
	tb.failed(tb.now, silent)
	tb.attempt(time.Second)
	tb.none()
}

// TestAddressThatIsBack in DNS has no backoff any more.
func TestAddressThatIsBack(t *testing.T) {
	tb := newTable(t, Config{}, "a", "b")
	tb.setCount(tb.now, 2)
	both := tb.targets
	a := tb.attempt(0)
	tb.keep("a", a, true)
	for tb.trouble[both[1]].delay < 10*time.Second {
		if got := tb.attempt(time.Second); got == a {
			tb.duplicate(tb.now, a)
		} else {
			tb.failed(tb.now, got)
		}
	}
	tb.targets = both[:1]
	tb.attempt(time.Second)
	tb.duplicate(tb.now, a)
	tb.targets = both
	if got := tb.attempt(time.Second); got != both[1] {
		t.Errorf("tried %v", got)
	}
}
