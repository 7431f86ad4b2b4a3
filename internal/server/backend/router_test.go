package backend

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseStrategies(t *testing.T) {
	for _, c := range []struct {
		in       string
		want     []Strategy
		repeated []string
	}{
		{"default", []Strategy{Default}, nil},
		{"destHost,destCIDR,defaultRoute,default", Strategies(), nil},
		{"default,destHost", []Strategy{Default, DestHost}, nil},
		{"default,default,", []Strategy{Default}, []string{"default"}},
		{",destHost,,destCIDR,destHost,destHost", []Strategy{DestHost, DestCIDR}, []string{"destHost", "destHost"}},
	} {
		got, repeated, err := ParseStrategies(c.in)
		if err != nil || !slices.Equal(got, c.want) || !slices.Equal(repeated, c.repeated) {
			t.Errorf("%q: %v, %q, %v; want %v, %q", c.in, got, repeated, err, c.want, c.repeated)
		}
	}
	for _, bad := range []string{"", ",", ",,", "desthost", "destHost, default", "default,other", "Default"} {
		_, _, err := ParseStrategies(bad)
		if err == nil || !strings.Contains(err.Error(), "destHost, destCIDR, defaultRoute, default") {
			t.Errorf("%q: error %v does not list the valid names", bad, err)
		}
	}
}

func TestEmptyRouter(t *testing.T) {
	r := New[*fake](Config{})
	if _, ok := r.Pick("a:80", nil); ok || r.Ready() {
		t.Error("an empty router has a backend")
	}
	if got, want := r.Counts(), []Count{{Default, 0, 0}}; !slices.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	if r.Leave(&fake{}) {
		t.Error("a stranger has left")
	}
}

func TestReadyWhenAnyStrategyHasABackend(t *testing.T) {
	r := New[*fake](Config{Strategies: []Strategy{DestHost, Default}})
	hostless, draining := &fake{}, &fake{}
	r.Join(hostless, member(t, "a", "cidr=10.0.0.0/8&exclude-default=true"))
	if r.Ready() {
		t.Error("ready with an agent that no strategy takes")
	}
	draining.draining.Store(true)
	r.Join(draining, member(t, "b", ""))
	if !r.Ready() {
		t.Error("not ready with a draining agent")
	}
	r.Leave(draining)
	if r.Ready() {
		t.Error("still ready")
	}
}

// TestStoragesDoNotCollide: a host that is named like an agent ID, a suffix or
// an address is none of them.
func TestStoragesDoNotCollide(t *testing.T) {
	r := New[*fake](Config{Strategies: []Strategy{DestHost, Default}})
	host, other := &fake{}, &fake{}
	r.Join(host, member(t, "other", "host=agent&host=example&exclude-default=true"))
	r.Join(other, member(t, "agent", "host=*.example"))
	for address, want := range map[string]*fake{"agent:1": host, "example:1": host, "a.example:1": other, "other:1": other} {
		if got, _ := r.Pick(address, nil); got != want {
			t.Errorf("%s went to the wrong backend", address)
		}
	}
}

// TestSpread: eight agents, most tunnels short and some very long. Tunnels open
// and dials served stay within 10 % of each other.
func TestSpread(t *testing.T) {
	const agents, dials = 8, 240000
	rnd := seeded(11)
	r := New[*fake](Config{Rand: seeded(12)})
	var all []*fake
	for i := range agents {
		b := &fake{id: fmt.Sprint(i)}
		all = append(all, b)
		r.Join(b, member(t, b.id, ""))
	}
	served := map[*fake]int{}
	ending := map[int][]*fake{} // by tick
	for dial := range dials {
		tick := dial / 10
		for _, b := range ending[tick] {
			b.load.Add(-1)
		}
		delete(ending, tick)
		b, _ := r.Pick("somewhere:443", nil)
		served[b]++
		b.load.Add(1)
		life := 1 + int(rnd()%100)
		if rnd()%20 == 0 { // one in twenty holds forty times as long as the others
			life = int(-2000 * math.Log(float64(1+rnd()%1e6)/1e6))
		}
		ending[tick+life] = append(ending[tick+life], b)
		if dial > dials/2 && dial%100 == 0 {
			within(t, "open tunnels", all, func(b *fake) int { return int(b.Load()) })
		}
	}
	within(t, "dials", all, func(b *fake) int { return served[b] })
}

func within(t *testing.T, what string, all []*fake, n func(*fake) int) {
	t.Helper()
	lowest, highest := math.MaxInt, 0
	for _, b := range all {
		lowest, highest = min(lowest, n(b)), max(highest, n(b))
	}
	if float64(highest) > 1.1*float64(lowest) {
		t.Fatalf("%s: between %d and %d", what, lowest, highest)
	}
}

// TestEqualsShareAlike: with equal loads every backend of a list gets its share,
// in a short list, in a long one, and as a last resort.
func TestEqualsShareAlike(t *testing.T) {
	for _, n := range []int{2, 3, 16, 17, 100} {
		for _, draining := range []bool{false, true} {
			r := New[*fake](Config{Rand: seeded(uint64(n))})
			served := map[*fake]int{}
			for i := range n {
				b := &fake{id: fmt.Sprint(i)}
				b.draining.Store(draining)
				r.Join(b, member(t, b.id, ""))
				served[b] = 0
			}
			const share = 400
			for range n * share {
				b, _ := r.Pick("x:1", nil)
				served[b]++
			}
			for _, got := range served {
				if got < share*3/4 || got > share*5/4 {
					t.Errorf("%d backends, draining %v: one got %d dials of %d", n, draining, got, n*share)
				}
			}
		}
	}
}

// TestTheOnlyHealthyOneIsFound among many that are draining, dead or skipped.
func TestTheOnlyHealthyOneIsFound(t *testing.T) {
	r := New[*fake](Config{FailureZone: "z"})
	var only *fake
	for i := range 1000 {
		b := &fake{}
		switch {
		case i == 700:
			only = b
		case i%2 == 0:
			b.draining.Store(true)
		default:
			b.suspect.Store(true)
		}
		r.Join(b, member(t, fmt.Sprint(i), []string{"", "failure-zone=z"}[i%2]))
	}
	for range 100 {
		if b, ok := r.Pick("x:1", nil); !ok || b != only {
			t.Fatal("another was chosen")
		}
	}
	b, ok := r.Pick("x:1", func(b *fake) bool { return b == only })
	if !ok || b.Suspect() || !b.Draining() {
		t.Error("without it, a draining one is next")
	}
	if _, ok := r.Pick("x:1", func(*fake) bool { return true }); ok {
		t.Error("a skipped backend was chosen")
	}
}

// TestChurn joins, leaves and replaces while others choose: what is chosen is
// joined at the time or was a moment ago, an agent is never half there, and the
// counts are exact in the end.
func TestChurn(t *testing.T) {
	r := New[*fake](Config{Strategies: Strategies()})
	anchor := &fake{}
	r.Join(anchor, member(t, "anchor", ""))
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for w := range 4 {
		ids := fmt.Sprintf("host=h%d&host=*.w%d.x&ipv4=10.0.0.%d&cidr=10.%d.0.0/16&cidr=fd00::/16&default-route=true", w, w, w, w)
		writers.Go(func() {
			m := member(t, fmt.Sprint("agent", w), ids)
			a, b := &fake{}, &fake{}
			r.Join(a, m)
			for range 300 {
				r.Replace(a, b, m)
				a, b = b, a
			}
			// Present all the time, so that dials for it never fell through.
			if got, _ := r.Pick(fmt.Sprintf("h%d:1", w), nil); got != a {
				t.Errorf("h%d went elsewhere", w)
			}
			r.Leave(a)
		})
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, address := range []string{"h1:1", "a.w2.x:1", "10.3.0.1:1", "10.0.0.2:1", "[fd00::9]:1"} {
					if _, ok := r.Pick(address, nil); !ok {
						t.Error("nobody was found, though one agent never leaves")
						return
					}
				}
				r.Counts()
				r.Explain("a.w2.x:1")
				runtime.Gosched() // else the race detector's scheduling starves the writers
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	want := []Count{{DestHost, 0, 0}, {DestCIDR, 0, 0}, {DefaultRoute, 0, 0}, {Default, 1, 1}}
	if got := r.Counts(); !slices.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
}

// TestPresenceIsAtomic: an agent that is in two managers is seen in both or in
// neither. With it, h goes to it; without it, nobody serves h.
func TestPresenceIsAtomic(t *testing.T) {
	r := New[*fake](Config{Strategies: []Strategy{DestHost, DestCIDR}})
	b := &fake{}
	m := member(t, "a", "host=h&cidr=10.0.0.0/8")
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		defer close(done)
		for range 5000 {
			r.Join(b, m)
			r.Leave(b)
		}
	})
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if c := r.Counts(); c[0].Backends != c[1].Backends || c[0].Keys != c[1].Keys {
			t.Fatalf("half there: %v", c)
		}
	}
	wg.Wait()
}
