package wire

import (
	"net/netip"
	"strings"
)

// maxNameLength is the longest host name that DNS can carry. A longer one can
// match no identifier, and looking for its suffixes would cost time that the
// dialling side chooses.
const maxNameLength = 253

// Host is a destination in canonical form, fit for comparison with ==. At most
// one field is set. The zero Host has neither: it matches no identifier.
type Host struct {
	Name string     // lower case, without the trailing dot
	Addr netip.Addr // IPv4-mapped addresses are IPv4; never with a zone
}

// IsZero reports whether h is neither a name nor an address.
func (h Host) IsZero() bool { return h == Host{} }

// String is the host as a person would write it, without brackets.
func (h Host) String() string {
	if h.Addr.IsValid() {
		return h.Addr.String()
	}
	return h.Name
}

// CanonicalHost takes the host out of the address of a dial: a name, an IPv4
// address or an IPv6 address of any spelling, with or without brackets, with or
// without a port. Two addresses lead to the same host exactly if the results are
// equal. An address that cannot be understood gives the zero Host, never an
// error: what to do with it is the business of the agent that would dial it. It
// allocates only for names with upper-case letters.
func CanonicalHost(address string) Host {
	host := hostPart(address)
	if host == "" {
		return Host{}
	}
	if addr, ok := canonicalAddr(host); ok {
		return Host{Addr: addr}
	}
	name := strings.TrimSuffix(host, ".")
	if len(name) > maxNameLength {
		return Host{}
	}
	return Host{Name: lower(name)}
}

// hostPart cuts the port and the brackets off. Two colons or more without
// brackets are an IPv6 address without a port (COMPAT 7.2).
func hostPart(address string) string {
	if inner, ok := strings.CutPrefix(address, "["); ok {
		host, rest, closed := strings.Cut(inner, "]")
		if !closed || (rest != "" && rest[0] != ':') {
			return ""
		}
		return host
	}
	colon := strings.IndexByte(address, ':')
	if colon < 0 || strings.IndexByte(address[colon+1:], ':') >= 0 {
		return address
	}
	return address[:colon]
}

// canonicalAddr parses an address without brackets. It looks before it parses,
// because a failed parse allocates its error and most names are no addresses.
func canonicalAddr(s string) (netip.Addr, bool) {
	colons := strings.IndexByte(s, ':') >= 0
	if !colons && !digitsAndDots(s) {
		return netip.Addr{}, false
	}
	if colons {
		s, _, _ = strings.Cut(s, "%")
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

func digitsAndDots(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && s[i] != '.' {
			return false
		}
	}
	return s != ""
}

// lower folds ASCII only: names on the wire are ASCII, and folding anything else
// would make equal what DNS keeps apart.
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return s
}
