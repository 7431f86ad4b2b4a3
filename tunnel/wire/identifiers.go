package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The keys of agent identifiers. The first five are the protocol's; a server
// that does not know the others ignores them. COMPAT 7.3.
const (
	KeyIPv4           = "ipv4"
	KeyIPv6           = "ipv6"
	KeyHost           = "host"
	KeyCIDR           = "cidr"
	KeyDefaultRoute   = "default-route"
	KeyExcludeDefault = "exclude-default"
	KeyFailureZone    = "failure-zone"
)

// Identifier is one pair as its agent wrote it, percent-decoded.
type Identifier struct{ Key, Value string }

// String is the pair in its plain form, key=value.
func (i Identifier) String() string { return i.Key + "=" + i.Value }

// Identifiers say which destinations an agent serves. The zero value is an agent
// without identifiers. The slices are shared by copies and not changed once built.
type Identifiers struct {
	Hosts        []string       // canonical names (CanonicalHost), each once
	HostPatterns []string       // what follows the star in host=*.suffix, with its dot: ".example.com"
	Addrs        []netip.Addr   // from ipv4, ipv6, and host where the host is an address; canonical, each once
	CIDRs        []netip.Prefix // masked, IPv4-mapped ones as IPv4, each once

	FailureZone    string // "" for none
	DefaultRoute   bool
	ExcludeDefault bool // serves only what its other identifiers name

	// Pairs are those that the fields above were made of, as written and in
	// order. They are what is logged and what is sent.
	Pairs []Identifier
}

// IgnoredIdentifier is a pair that a server could read but not use.
type IgnoredIdentifier struct {
	Identifier
	Err error
}

// NewIdentifiers builds identifiers from decoded pairs as strictly as an agent
// must at its start: an unknown key, an empty or unusable value, and two
// different values for a key that takes one are errors that name the pair.
func NewIdentifiers(pairs []Identifier) (Identifiers, error) {
	var b identifierBuilder
	for _, p := range pairs {
		if err := b.add(p); err != nil {
			return Identifiers{}, fmt.Errorf("identifier %q: %w", p.String(), err)
		}
	}
	return b.ids, nil
}

// Merge returns i with the pairs of o added, for identifiers that come from two
// sources. Where a key takes one value only, that of i stays.
func (i Identifiers) Merge(o Identifiers) Identifiers {
	var b identifierBuilder
	for _, p := range slices.Concat(i.Pairs, o.Pairs) {
		_ = b.add(p) // every pair was good once; what fails here is a second value, and the first one stays
	}
	return b.ids
}

// identifierBuilder takes pairs in, one after the other.
type identifierBuilder struct {
	ids    Identifiers
	seen   map[any]struct{}  // canonical values, so that each is listed once
	single map[string]string // values of keys that take one
}

// add takes one pair in. On an error nothing changes.
func (b *identifierBuilder) add(p Identifier) error {
	if strings.Contains(p.Key+p.Value, ",") {
		return errors.New(`pairs are separated by "&", not by commas, and a key is repeated for more values, for example host=a&host=b&cidr=10.1.0.0/16`)
	}
	if !knownKey(p.Key) {
		return errors.New("unknown key; known are ipv4, ipv6, host, cidr, default-route, exclude-default, failure-zone")
	}
	if p.Value == "" {
		return errors.New("empty value")
	}
	var err error
	switch p.Key {
	case KeyHost:
		err = b.addHost(p.Value)
	case KeyIPv4, KeyIPv6:
		p.Value = unbracket(p.Value) // an old server compares bytes, and brackets never match there
		err = b.addAddr(p.Key, p.Value)
	case KeyCIDR:
		err = b.addCIDR(p.Value)
	default:
		err = b.addSingle(p)
	}
	if err == nil {
		b.ids.Pairs = append(b.ids.Pairs, p)
	}
	return err
}

func knownKey(key string) bool {
	switch key {
	case KeyIPv4, KeyIPv6, KeyHost, KeyCIDR, KeyDefaultRoute, KeyExcludeDefault, KeyFailureZone:
		return true
	}
	return false
}

func (b *identifierBuilder) addHost(value string) error {
	if addr, ok := canonicalAddr(unbracket(value)); ok {
		b.insertAddr(addr)
		return nil
	}
	name := lower(strings.TrimSuffix(value, "."))
	suffix, pattern := strings.CutPrefix(name, "*.")
	if !validName(suffix) {
		return errors.New("not a host name, an address or a pattern such as *.example.com (no port, no scheme)")
	}
	if pattern {
		if b.first(name) {
			b.ids.HostPatterns = append(b.ids.HostPatterns, "."+suffix)
		}
		return nil
	}
	if b.first(name) {
		b.ids.Hosts = append(b.ids.Hosts, name)
	}
	return nil
}

func (b *identifierBuilder) addAddr(key, value string) error {
	addr, ok := canonicalAddr(value)
	switch {
	case !ok:
		return fmt.Errorf("not an %s address", key)
	case key == KeyIPv4 && !addr.Is4():
		return errors.New("an IPv6 address under the key ipv4")
	case key == KeyIPv6 && !strings.Contains(value, ":"):
		return errors.New("an IPv4 address under the key ipv6")
	}
	b.insertAddr(addr)
	return nil
}

func (b *identifierBuilder) addCIDR(value string) error {
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return errors.New("not a prefix such as 10.1.0.0/16 or fd00::/64")
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return errors.New("an IPv4-mapped prefix needs a length of 96 or more")
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	if prefix = prefix.Masked(); b.first(prefix) {
		b.ids.CIDRs = append(b.ids.CIDRs, prefix)
	}
	return nil
}

// addSingle takes in a key that has one value.
func (b *identifierBuilder) addSingle(p Identifier) error {
	if earlier, given := b.single[p.Key]; given {
		if earlier != p.Value {
			return fmt.Errorf("a second value; %q came first", earlier)
		}
		return nil
	}
	if err := b.setSingle(p); err != nil {
		return err
	}
	if b.single == nil {
		b.single = map[string]string{}
	}
	b.single[p.Key] = p.Value
	return nil
}

func (b *identifierBuilder) setSingle(p Identifier) error {
	if p.Key == KeyFailureZone {
		if !validZone(p.Value) {
			return errors.New("not a zone name (letters, digits, -, _, ., / only; at most 253)")
		}
		b.ids.FailureZone = p.Value
		return nil
	}
	value, err := strconv.ParseBool(p.Value)
	if err != nil {
		return errors.New("neither true nor false")
	}
	if p.Key == KeyDefaultRoute {
		b.ids.DefaultRoute = value
	} else {
		b.ids.ExcludeDefault = value
	}
	return nil
}

// first reports whether it is called with value for the first time.
func (b *identifierBuilder) first(value any) bool {
	if _, again := b.seen[value]; again {
		return false
	}
	if b.seen == nil {
		b.seen = map[any]struct{}{}
	}
	b.seen[value] = struct{}{}
	return true
}

func (b *identifierBuilder) insertAddr(addr netip.Addr) {
	if b.first(addr) {
		b.ids.Addrs = append(b.ids.Addrs, addr)
	}
}

func unbracket(s string) string {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok := strings.CutSuffix(inner, "]"); ok {
			return inner
		}
	}
	return s
}

// validName accepts what resolvers accept: letters, digits, hyphens and
// underscores in labels of 1 to 63 bytes. name is in lower case.
func validName(name string) bool {
	if len(name) > maxNameLength {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !letterOrDigit(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func validZone(zone string) bool {
	for i := range len(zone) {
		if c := zone[i]; !letterOrDigit(c|0x20) && !letterOrDigit(c) && !strings.ContainsRune("-_./", rune(c)) {
			return false
		}
	}
	return len(zone) <= maxNameLength
}

func letterOrDigit(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
