package wire

import (
	"net/netip"
	"strings"
	"testing"
)

func TestCanonicalHost(t *testing.T) {
	name := func(s string) Host { return Host{Name: s} }
	addr := func(s string) Host { return Host{Addr: netip.MustParseAddr(s)} }
	for _, c := range []struct {
		address string
		want    Host
	}{
		{"node1:80", name("node1")},
		{"node1", name("node1")},
		{"NODE1.Example.COM.:80", name("node1.example.com")},
		{"node1.", name("node1")},
		{"[node1]:80", name("node1")},
		{"1.2.3.4:80", addr("1.2.3.4")},
		{"1.2.3.4", addr("1.2.3.4")},
		{"[1.2.3.4]:80", addr("1.2.3.4")},
		{"[fd00::1]:80", addr("fd00::1")},
		{"[fd00::1]", addr("fd00::1")},
		{"fd00::1", addr("fd00::1")},
		{"[FD00:0:0:0::0001]:80", addr("fd00::1")},
		{"fd00:0::3", addr("fd00::3")},
		{"[fe80::1%eth0]:80", addr("fe80::1")},
		{"fe80::1%25eth0", addr("fe80::1")},
		{"[::ffff:1.2.3.4]:80", addr("1.2.3.4")},
		{"::ffff:102:304", addr("1.2.3.4")},
		{"[::]:80", addr("::")},
		// Not addresses: names that look like one stay names.
		{"1.2.3:80", name("1.2.3")},
		{"01.2.3.4:80", name("01.2.3.4")},
		{"256.1.1.1:80", name("256.1.1.1")},
		{"a:b:c", name("a:b:c")},
		// No host at all.
		{"", Host{}},
		{":80", Host{}},
		{"[]:80", Host{}},
		{"[fd00::1", Host{}},
		{"[fd00::1]x", Host{}},
		{".", Host{}},
		{strings.Repeat("a.", 127) + "a:80", Host{}}, // 255 bytes: no name can be that long
	} {
		if got := CanonicalHost(c.address); got != c.want {
			t.Errorf("CanonicalHost(%q) = %+v, want %+v", c.address, got, c.want)
		}
	}
	longest := strings.Repeat("a.", 126) + "a"
	if got := CanonicalHost(longest + ".:80"); got != name(longest) {
		t.Errorf("a name of %d bytes was not taken", len(longest))
	}
}

func TestCanonicalHostDoesNotAllocate(t *testing.T) {
	for _, address := range []string{"node1.example.com:443", "10.1.2.3:80", "[fd00::1]:80", "[fe80::1%eth0]:80", "1node.2b:80"} {
		if n := testing.AllocsPerRun(100, func() { CanonicalHost(address) }); n != 0 {
			t.Errorf("CanonicalHost(%q) allocates %v times", address, n)
		}
	}
}

func FuzzCanonicalHost(f *testing.F) {
	for _, s := range []string{"node1:80", "[fd00::1%x]:1", "1.2.3.4", "[::ffff:1.2.3.4]", "A.", "::", "[", "a..", "%", "[a:b]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, address string) {
		h := CanonicalHost(address)
		if h.Name != "" && h.Addr.IsValid() {
			t.Fatalf("%q is both a name and an address: %+v", address, h)
		}
		if h.Addr.Is4In6() || h.Addr.Zone() != "" {
			t.Fatalf("%q: %v is not canonical", address, h.Addr)
		}
		if len(h.Name) > maxNameLength || h.Name != lower(h.Name) {
			t.Fatalf("%q: %q is not canonical", address, h.Name)
		}
		if h.Addr.IsValid() {
			for _, again := range []string{h.String(), "[" + h.String() + "]", "[" + strings.ToUpper(h.String()) + "%z]:1"} {
				if h.Addr.Is4() && strings.Contains(again, "%") {
					continue // IPv4 has no zones
				}
				if got := CanonicalHost(again); got != h {
					t.Fatalf("CanonicalHost(%q) = %+v, want %+v as for %q", again, got, h, address)
				}
			}
		}
	})
}
