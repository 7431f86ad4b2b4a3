package wire

import (
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestParseIdentifiers(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Identifiers // without Pairs
	}{
		{"", Identifiers{}},
		{"&", Identifiers{}},
		{"host=a&host=b.example&cidr=10.1.0.0/16&ipv4=1.2.3.4&ipv6=fd00::1&failure-zone=eu-1b&default-route=true", Identifiers{
			Hosts: []string{"a", "b.example"}, CIDRs: prefixes("10.1.0.0/16"), Addrs: addrs("1.2.3.4", "fd00::1"), FailureZone: "eu-1b", DefaultRoute: true}},
		{"host=A.Example.&host=a.example", Identifiers{Hosts: []string{"a.example"}}},
		{"host=*.Example.com.&host=*.x", Identifiers{HostPatterns: []string{".example.com", ".x"}}},
		{"host=10.0.0.1&ipv4=10.0.0.1&ipv4=::ffff:10.0.0.1&ipv6=::ffff:a00:1", Identifiers{Addrs: addrs("10.0.0.1")}},
		{"ipv6=[FD00:0::1]&host=[fd00::1]&ipv6=fd00::1%25eth0", Identifiers{Addrs: addrs("fd00::1")}},
		{"cidr=127.0.0.1/16&cidr=127.0.0.0/16&cidr=::ffff:10.0.0.1/104&cidr=fd00::1/64", Identifiers{CIDRs: prefixes("127.0.0.0/16", "10.0.0.0/8", "fd00::/64")}},
		{"cidr=0.0.0.0/0&cidr=::/0", Identifiers{CIDRs: prefixes("0.0.0.0/0", "::/0")}},
		{"default-route=F&exclude-default=1", Identifiers{ExcludeDefault: true}},
		{"default-route=true&default-route=true", Identifiers{DefaultRoute: true}},
		{"failure-zone=Europe/West_1.a", Identifiers{FailureZone: "Europe/West_1.a"}},
		{"host=kube_dns.kube-system", Identifiers{Hosts: []string{"kube_dns.kube-system"}}},
	} {
		got, err := ParseIdentifiers(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		presented, ignored, err := ParsePresentedIdentifiers(got.Encode())
		if err != nil || ignored != nil || !reflect.DeepEqual(presented, got) {
			t.Errorf("%q: what is sent, %q, is read as %+v, %v, %v", c.in, got.Encode(), presented, ignored, err)
		}
		got.Pairs = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q:\n got %+v\nwant %+v", c.in, got, c.want)
		}
	}
}

func TestParseIdentifiersRefuses(t *testing.T) {
	for _, c := range []struct{ in, says string }{
		{"host=a,cidr=10.0.0.0/8", `"host=a,cidr=10.0.0.0/8"`},
		{"host=a,cidr=10.0.0.0/8", `separated by "&"`},
		{"ipv4=1.2.3.4,5.6.7.8", `separated by "&"`},
		{"host%3Da%2Cb", `separated by "&"`},
		{"uid=7", `"uid=7": unknown key`},
		{"Host=a", "unknown key"},
		{"host", `"host=": empty value`},
		{"host=a&cidr=", `"cidr=": empty value`},
		{"default-route=", "empty value"},
		{"default-route=bogus", "neither true nor false"},
		{"exclude-default=ja", "neither true nor false"},
		{"default-route=true&default-route=false", "a second value"},
		{"failure-zone=a&failure-zone=b", `"failure-zone=b": a second value`},
		{"failure-zone=a b", "zone name"},
		{"ipv4=notanip", "not an ipv4 address"},
		{"ipv4=fd00::1", "IPv6 address under the key ipv4"},
		{"ipv6=1.2.3.4", "IPv4 address under the key ipv6"},
		{"ipv6=:::::", "not an ipv6 address"},
		{"cidr=10.0.0.1", "not a prefix"},
		{"cidr=10.0.0.0/33", "not a prefix"},
		{"cidr=::ffff:0:0/90", "96 or more"},
		{"host=node1:80", "no port"},
		{"host=https://node1", "no port"},
		{"host=a..b", "not a host name"},
		{"host=*", "not a host name"},
		{"host=*.", "not a host name"},
		{"host=a*.b", "not a host name"},
		{"host=*.*.b", "not a host name"},
		{"host=" + strings.Repeat("a", 64), "not a host name"},
		{"host=" + strings.Repeat("a.", 130) + "b", "not a host name"},
		{"host=a;host=b", `";"`},
		{"host=%zz", "%zz"},
		{"ho%zst=a", "%z"},
		{strings.Repeat("host=a&", maxIdentifiers), "more than"},
	} {
		_, err := ParseIdentifiers(c.in)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.60q: error %v, want one that says %q", c.in, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: the error has several lines", c.in)
		}
	}
}

// TestPlainAndEncodedAgree: for every reserved character of a URL, a value that
// has it in the plain form means what it means percent-encoded, be it an error.
// "&", which ends a value, and "%" and "+", which are the encoding, differ by
// nature: no identifier has them, so that both forms must be refused.
func TestPlainAndEncodedAgree(t *testing.T) {
	values := map[string]string{KeyHost: "n%s.example", KeyIPv4: "1.2.3%s4", KeyIPv6: "fd00:%s1", KeyCIDR: "10.0.0.0%s8", KeyFailureZone: "eu%s1", KeyDefaultRoute: "tr%sue", KeyExcludeDefault: "%strue"}
	accepted := 0
	for _, reserved := range ":/?#[]@!$&'()*+,;=% \"<>\\^`{|}~-._" {
		c := string(reserved)
		for key, format := range values {
			plainText := key + "=" + strings.Replace(format, "%s", c, 1)
			encodedText := key + "=" + url.QueryEscape(strings.Replace(format, "%s", c, 1))
			everyByte := key + "="
			for _, b := range []byte(strings.Replace(format, "%s", c, 1)) {
				const hex = "0123456789abcdef"
				everyByte += "%" + string(hex[b>>4]) + string(hex[b&15])
			}
			whole := url.PathEscape(plainText)
			plain, plainErr := ParseIdentifiers(plainText)
			for _, other := range []string{encodedText, everyByte, strings.ReplaceAll(whole, "=", "%3D")} {
				encoded, err := ParseIdentifiers(other)
				if (plainErr == nil) != (err == nil) || !reflect.DeepEqual(plain, encoded) {
					t.Errorf("%q is %+v, %v\nbut %q is %+v, %v", plainText, plain, plainErr, other, encoded, err)
				}
			}
			if plainErr == nil {
				accepted++
			}
		}
	}
	if accepted < 5 {
		t.Errorf("only %d combinations were accepted: the test compares refusals only", accepted)
	}
}

func TestParsePresentedIdentifiers(t *testing.T) {
	const presented = "host=a&ipv4=notanip&future=1&default-route=maybe&default-route=true&host=&failure-zone=z&failure-zone=y&x,y=1&cidr=10.0.0.1/8"
	ids, ignored, err := ParsePresentedIdentifiers(presented)
	if err != nil {
		t.Fatal(err)
	}
	want := Identifiers{Hosts: []string{"a"}, CIDRs: prefixes("10.0.0.0/8"), FailureZone: "z"}
	wantPairs := []Identifier{{KeyHost, "a"}, {KeyFailureZone, "z"}, {KeyCIDR, "10.0.0.1/8"}}
	if !slices.Equal(ids.Pairs, wantPairs) {
		t.Errorf("pairs %v, want %v", ids.Pairs, wantPairs)
	}
	ids.Pairs = nil
	if !reflect.DeepEqual(ids, want) {
		t.Errorf("got %+v, want %+v", ids, want)
	}
	var names []string
	for _, i := range ignored {
		names = append(names, i.String())
	}
	if want := []string{"ipv4=notanip", "default-route=maybe", "default-route=true", "host=", "failure-zone=y"}; !slices.Equal(names, want) {
		t.Errorf("ignored %q, want %q", names, want)
	}
	for _, bad := range []string{"host=a;b", "host=%", "%=a"} {
		if _, _, err := ParsePresentedIdentifiers(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestMerge(t *testing.T) {
	flag, err := ParseIdentifiers("host=A&failure-zone=mine")
	if err != nil {
		t.Fatal(err)
	}
	node, err := NewIdentifiers([]Identifier{{KeyHost, "a"}, {KeyFailureZone, "theirs"}, {KeyIPv4, "1.2.3.4"}})
	if err != nil {
		t.Fatal(err)
	}
	got := flag.Merge(node)
	if got.FailureZone != "mine" || !slices.Equal(got.Hosts, []string{"a"}) || len(got.Addrs) != 1 {
		t.Errorf("merged to %+v", got)
	}
	if want := "host=A&failure-zone=mine&host=a&ipv4=1.2.3.4"; got.Encode() != want {
		t.Errorf("Encode() = %q, want %q", got.Encode(), want)
	}
}

func FuzzIdentifiers(f *testing.F) {
	for _, s := range []string{"host=a&host=b.example&cidr=10.1.0.0/16&ipv4=1.2.3.4&ipv6=fd00::1&failure-zone=eu-1b&default-route=true",
		"host=*.a", "host%3Da", "ipv6=[::1]", "cidr=::ffff:1.2.3.4/100", "a;b", "%", "host=a,b", "default-route=x&default-route=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		presented, ignored, err := ParsePresentedIdentifiers(s)
		if _, theirs := url.ParseQuery(s); (theirs == nil) != (err == nil) && strings.Count(s, "&") < maxIdentifiers {
			t.Fatalf("%q: we say %v, net/url says %v", s, err, theirs)
		}
		strict, err := ParseIdentifiers(s)
		if err != nil {
			return
		}
		if strings.Contains(s, "=") && (len(ignored) > 0 || !reflect.DeepEqual(strict, presented)) {
			t.Fatalf("%q: agent %+v, server %+v, ignored %v", s, strict, presented, ignored)
		}
		sent := strict.Encode()
		again, err := ParseIdentifiers(sent)
		if err != nil || !reflect.DeepEqual(strict, again) {
			t.Fatalf("%q is sent as %q, read as %+v, %v", s, sent, again, err)
		}
		values, err := url.ParseQuery(sent)
		if err != nil {
			t.Fatalf("an old server cannot read %q: %v", sent, err)
		}
		n := 0
		for _, list := range values {
			n += len(list)
		}
		if n != len(strict.Pairs) {
			t.Fatalf("an old server reads %d pairs of %q, want %d", n, sent, len(strict.Pairs))
		}
		for _, c := range []byte(sent) {
			if c < 0x21 || c > 0x7e {
				t.Fatalf("%q is not fit for a header", sent)
			}
		}
		for _, p := range strict.CIDRs {
			if p != p.Masked() || p.Addr().Is4In6() {
				t.Fatalf("%v is not canonical", p)
			}
		}
		for _, h := range strict.Hosts {
			if CanonicalHost(h+":1") != (Host{Name: h}) {
				t.Fatalf("a dial to %q never matches its identifier", h)
			}
		}
		for _, a := range strict.Addrs {
			if CanonicalHost(netip.AddrPortFrom(a, 1).String()) != (Host{Addr: a}) {
				t.Fatalf("a dial to %v never matches its identifier", a)
			}
		}
	})
}
