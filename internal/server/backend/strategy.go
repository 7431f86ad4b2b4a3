package backend

import (
	"errors"
	"fmt"
	"strings"
)

// Strategy is one way to find the backends of a destination.
type Strategy uint8

// The strategies, by their names on the command line.
const (
	DestHost     Strategy = iota + 1 // "destHost": by host, address or *.suffix
	DestCIDR                         // "destCIDR": by the longest prefix
	DefaultRoute                     // "defaultRoute": agents with default-route=true
	Default                          // "default": all agents that did not opt out
)

// Strategies lists all strategies, most specific first.
func Strategies() []Strategy { return []Strategy{DestHost, DestCIDR, DefaultRoute, Default} }

// String is the strategy's name on the command line and in metrics.
func (s Strategy) String() string {
	switch s {
	case DestHost:
		return "destHost"
	case DestCIDR:
		return "destCIDR"
	case DefaultRoute:
		return "defaultRoute"
	case Default:
		return "default"
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// ParseStrategies reads the value of --proxy-strategies: names separated by
// commas, in the order in which they are asked. Names are taken byte for byte.
// Empty elements are passed over, but not an empty list. A name that comes again
// has no effect; it is returned in repeated, for a warning.
func ParseStrategies(s string) (list []Strategy, repeated []string, err error) {
	seen := map[Strategy]bool{}
	for name := range strings.SplitSeq(s, ",") {
		if name == "" {
			continue
		}
		strategy, ok := named(name)
		if !ok {
			return nil, nil, fmt.Errorf("unknown strategy %q: valid are %s", name, validNames())
		}
		if seen[strategy] {
			repeated = append(repeated, name)
			continue
		}
		seen[strategy] = true
		list = append(list, strategy)
	}
	if len(list) == 0 {
		return nil, nil, errors.New("no strategy is named: valid are " + validNames())
	}
	return list, repeated, nil
}

func named(name string) (Strategy, bool) {
	for _, s := range Strategies() {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

func validNames() string {
	names := make([]string, 0, 4)
	for _, s := range Strategies() {
		names = append(names, s.String())
	}
	return strings.Join(names, ", ")
}
