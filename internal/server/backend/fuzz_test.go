package backend

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// FuzzPick compares the router with the oracle on identifiers and destinations
// of any shape. Agents are separated by blanks in agents.
func FuzzPick(f *testing.F) {
	f.Add("host=a&cidr=10.0.0.0/8 host=*.b&ipv6=fd00::1 default-route=true&exclude-default=true", "x.b:80")
	f.Add("cidr=10.0.0.0/8 cidr=10.1.0.0/16 cidr=::/0 cidr=::ffff:10.2.0.0/112", "10.1.2.3:80")
	f.Add("host=*.c host=*.b.c host=a.b.c", "z.a.b.c")
	f.Fuzz(func(t *testing.T, agents, address string) {
		if address == "" || strings.ContainsAny(address, "[]%") && wire.CanonicalHost(address).IsZero() {
			return
		}
		r := New[*fake](Config{Strategies: Strategies(), Rand: seeded(1)})
		o := oracle{strategies: Strategies(), joined: map[*fake]Member{}}
		for _, text := range strings.Fields(agents) {
			ids, _, err := wire.ParsePresentedIdentifiers(text)
			if err != nil {
				continue
			}
			b, m := &fake{}, Member{AgentID: text, Identifiers: ids}
			r.Join(b, m)
			o.joined[b] = m
		}
		// The oracle reads plain addresses; how they may be spelt is tested in wire.
		plain := wire.CanonicalHost(address).String()
		if _, err := netip.ParseAddr(plain); err != nil && strings.ContainsAny(plain, ":[]") {
			return
		}
		compareFuzz(t, r, o, plain)
		for b := range o.joined {
			r.Leave(b)
			delete(o.joined, b)
			compareFuzz(t, r, o, plain)
		}
		for _, c := range r.Counts() {
			if c.Keys != 0 || c.Backends != 0 {
				t.Fatalf("all have left, but %+v", c)
			}
		}
	})
}

func compareFuzz(t *testing.T, r *Router[*fake], o oracle, address string) {
	t.Helper()
	got, ok := r.Pick(address, nil)
	want := o.allowed(address, nil)
	if ok != (len(want) > 0) || ok && !slices.Contains(want, got) {
		t.Fatalf("Pick(%q) = %q, %v; the oracle allows %d others", address, o.joined[got].Identifiers.Encode(), ok, len(want))
	}
}
