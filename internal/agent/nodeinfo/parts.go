package nodeinfo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Part is one kind of thing that a Node says and that can be an identifier.
type Part uint8

// The parts, by their names on the command line.
const (
	Addresses Part = iota + 1 // "addresses": internal and external IP addresses and DNS names
	PodCIDRs                  // "podCIDRs": the prefixes of the node's pods
	Hostname                  // "hostname": the address of that type, and the label kubernetes.io/hostname
	Zone                      // "zone": the label topology.kubernetes.io/zone
)

// Parts lists all parts.
func Parts() []Part { return []Part{Addresses, PodCIDRs, Hostname, Zone} }

// String is the part's name on the command line.
func (p Part) String() string {
	switch p {
	case Addresses:
		return "addresses"
	case PodCIDRs:
		return "podCIDRs"
	case Hostname:
		return "hostname"
	case Zone:
		return "zone"
	}
	return fmt.Sprintf("Part(%d)", uint8(p))
}

// ParseParts reads a list of names, separated by commas. Names are taken byte for
// byte; empty ones are passed over, but not an empty list.
func ParseParts(s string) ([]Part, error) {
	var list []Part
	for name := range strings.SplitSeq(s, ",") {
		if name == "" {
			continue
		}
		i := slices.IndexFunc(Parts(), func(p Part) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown key %q: valid are %s", name, Names(Parts()))
		}
		if p := Parts()[i]; !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no key is named: valid are " + Names(Parts()))
	}
	return list, nil
}

// Names is a list as ParseParts reads it.
func Names(parts []Part) string {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}
