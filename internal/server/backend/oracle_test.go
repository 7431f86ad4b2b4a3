package backend

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// fake is a backend whose state the test sets.
type fake struct {
	id                string
	load              atomic.Int64
	draining, suspect atomic.Bool
}

func (f *fake) Load() int64    { return f.load.Load() }
func (f *fake) Draining() bool { return f.draining.Load() }
func (f *fake) Suspect() bool  { return f.suspect.Load() }

// member parses identifiers; they are constants of the test.
func member(t testing.TB, agentID, identifiers string) Member {
	t.Helper()
	ids, err := wire.ParseIdentifiers(identifiers)
	if err != nil {
		t.Fatal(err)
	}
	return Member{AgentID: agentID, Identifiers: ids}
}

// seeded is a deterministic source of random bits.
func seeded(seed uint64) func() uint64 { return rand.New(rand.NewPCG(seed, seed)).Uint64 }

// oracle answers as the router must, by looking at everybody every time.
type oracle struct {
	strategies []Strategy
	zone       string
	joined     map[*fake]Member
}

// allowed is every backend that a right answer may name.
func (o oracle) allowed(address string, skip map[*fake]bool) []*fake {
	for _, s := range o.strategies {
		best, chosen := []int(nil), []*fake(nil)
		for b, m := range o.joined {
			specific, ok := fits(s, m.Identifiers, address)
			if !ok || skip[b] {
				continue
			}
			far := 0
			if o.zone != "" && m.Identifiers.FailureZone != o.zone {
				far = 1
			}
			health := 0
			if b.Draining() {
				health = 1
			}
			if b.Suspect() {
				health = 2
			}
			rank := []int{-specific, health, far}
			switch c := slices.Compare(rank, best); {
			case best == nil || c < 0:
				best, chosen = rank, []*fake{b}
			case c == 0:
				chosen = append(chosen, b)
			}
		}
		if chosen != nil {
			return chosen
		}
	}
	return nil
}

// fits reports whether the identifiers serve address under s, and how specific
// the match is. It works from the pairs as written.
func fits(s Strategy, ids wire.Identifiers, address string) (specific int, ok bool) {
	switch s {
	case DefaultRoute:
		return 0, ids.DefaultRoute
	case Default:
		return 0, !ids.ExcludeDefault
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip, _ := netip.ParseAddr(host)
	ip = ip.Unmap().WithZone("")
	name := strings.TrimSuffix(strings.ToLower(host), ".")
	specific = -1
	for _, p := range ids.Pairs {
		switch {
		case s == DestCIDR && p.Key == wire.KeyCIDR:
			prefix := netip.MustParsePrefix(p.Value)
			if a := prefix.Addr(); a.Is4In6() {
				prefix = netip.PrefixFrom(a.Unmap(), prefix.Bits()-96)
			}
			if prefix.Contains(ip) {
				specific = max(specific, prefix.Bits())
			}
		case s == DestHost && p.Key != wire.KeyCIDR:
			value := strings.Trim(strings.TrimSuffix(strings.ToLower(p.Value), "."), "[]")
			suffix, pattern := strings.CutPrefix(value, "*")
			if addr, err := netip.ParseAddr(value); err == nil {
				if addr.Unmap().WithZone("") == ip {
					specific = 1000
				}
			} else if pattern && !ip.IsValid() && strings.HasSuffix(name, suffix) {
				specific = max(specific, len(suffix))
			} else if p.Key == wire.KeyHost && value == name {
				specific = 1000
			}
		}
	}
	return specific, specific >= 0
}

// Words of a small world, in which random agents and dials meet often.
func identifierPool() []string {
	return []string{
		"host=a", "host=B.example", "host=c.b.example.", "host=*.example", "host=*.b.example", "host=*.c.B.example",
		"host=10.0.0.1", "ipv4=10.0.0.1", "ipv4=10.0.1.2", "ipv6=fd00::1", "ipv6=FD00:0::2", "ipv6=::ffff:10.0.1.3", "host=fd00::2",
		"cidr=10.0.0.0/8", "cidr=10.0.0.7/16", "cidr=10.0.1.0/24", "cidr=10.0.1.2/32", "cidr=0.0.0.0/0",
		"cidr=fd00::/8", "cidr=fd00::/64", "cidr=fd00::1/128", "cidr=::/0",
		"default-route=true", "default-route=false", "exclude-default=true", "failure-zone=east", "failure-zone=west",
	}
}

func addressPool() []string {
	return []string{
		"a:80", "A.:80", "a", "b.example:1", "c.b.example:1", "d.c.b.example:1", "x.example:1", "example:1", "nowhere:80",
		"10.0.0.1:80", "10.0.1.2:80", "10.0.1.3:80", "10.0.1.9", "10.9.9.9:1", "192.168.0.1:1", "[::ffff:10.0.1.2]:80",
		"[fd00::1]:80", "[FD00::0:2%eth0]:80", "[fd00:0:0:1::1]:1", "[2001:db8::1]:1", "fd00::7",
	}
}

func randomIdentifiers(rnd *rand.Rand) string {
	pool := identifierPool()
	var pairs, keys []string
	for range rnd.IntN(5) {
		p := pool[rnd.IntN(len(pool))]
		key, _, _ := strings.Cut(p, "=")
		if slices.Contains(keys, key) && slices.Contains([]string{"default-route", "exclude-default", "failure-zone"}, key) {
			continue
		}
		pairs, keys = append(pairs, p), append(keys, key)
	}
	return strings.Join(pairs, "&")
}

// TestRouterAgreesWithOracle drives router and oracle through the same random
// history and compares every answer and every count.
func TestRouterAgreesWithOracle(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		cfg := Config{Strategies: Strategies(), Rand: seeded(seed)}
		rnd.Shuffle(4, func(i, j int) { cfg.Strategies[i], cfg.Strategies[j] = cfg.Strategies[j], cfg.Strategies[i] })
		cfg.Strategies = cfg.Strategies[:1+rnd.IntN(4)]
		if rnd.IntN(2) == 0 {
			cfg.FailureZone = "east"
		}
		r := New[*fake](cfg)
		o := oracle{strategies: cfg.Strategies, zone: cfg.FailureZone, joined: map[*fake]Member{}}
		var all []*fake
		for i := range 30 {
			all = append(all, &fake{id: fmt.Sprint("agent", i/2)}) // two links for each agent ID
		}
		for range 200 {
			b := all[rnd.IntN(len(all))]
			switch rnd.IntN(8) {
			case 0, 1:
				m := member(t, b.id, randomIdentifiers(rnd))
				r.Join(b, m)
				o.joined[b] = m
			case 2:
				_, was := o.joined[b]
				if r.Leave(b) != was {
					t.Fatal("Leave is wrong about who was joined")
				}
				delete(o.joined, b)
			case 3:
				old := all[rnd.IntN(len(all))]
				m := member(t, b.id, randomIdentifiers(rnd))
				r.Replace(old, b, m)
				delete(o.joined, old)
				o.joined[b] = m
			case 4:
				b.draining.Store(rnd.IntN(3) == 0)
				b.suspect.Store(rnd.IntN(3) == 0)
			default:
				comparePick(t, r, o, rnd, all)
			}
			compareCounts(t, r, o)
		}
	}
}

func comparePick(t *testing.T, r *Router[*fake], o oracle, rnd *rand.Rand, all []*fake) {
	t.Helper()
	skip := map[*fake]bool{}
	for range rnd.IntN(4) {
		skip[all[rnd.IntN(len(all))]] = true
	}
	address := addressPool()[rnd.IntN(len(addressPool()))]
	got, ok := r.Pick(address, func(b *fake) bool { return skip[b] })
	want := o.allowed(address, skip)
	if ok != (len(want) > 0) || ok && !slices.Contains(want, got) {
		t.Fatalf("strategies %v, zone %q: Pick(%s) = %v (%v), %v; right are %d others", o.strategies, o.zone, address, got, o.joined[got].Identifiers.Encode(), ok, len(want))
	}
}

func compareCounts(t *testing.T, r *Router[*fake], o oracle) {
	t.Helper()
	for i, c := range r.Counts() {
		keys, backends := map[any]bool{}, 0
		for _, m := range o.joined {
			before := len(keys)
			ids := m.Identifiers
			in := true
			switch c.Strategy {
			case DestHost:
				for _, x := range ids.Hosts {
					keys["host "+x] = true
				}
				for _, x := range ids.HostPatterns {
					keys["pattern "+x] = true
				}
				for _, x := range ids.Addrs {
					keys[x] = true
				}
				in = len(ids.Hosts)+len(ids.HostPatterns)+len(ids.Addrs) > 0
			case DestCIDR:
				for _, x := range ids.CIDRs {
					keys[x] = true
				}
				in = len(ids.CIDRs) > 0
			case DefaultRoute:
				if in = ids.DefaultRoute; in {
					keys[m.AgentID] = true
				}
			case Default:
				if in = !ids.ExcludeDefault; in {
					keys[m.AgentID] = true
				}
			}
			if in {
				backends++
			} else if len(keys) != before {
				t.Fatal("the test contradicts itself")
			}
		}
		if want := (Count{c.Strategy, len(keys), backends}); c != want || c.Strategy != o.strategies[i] {
			t.Fatalf("count %+v, want %+v", c, want)
		}
	}
	if r.Len() != len(o.joined) {
		t.Fatalf("Len() = %d, want %d", r.Len(), len(o.joined))
	}
}
