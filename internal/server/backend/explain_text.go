package backend

import (
	"fmt"
	"strings"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Text is the explanation as lines for a person. Of each list of agents at most
// limit are named; the rest is counted.
func (x Explanation[B]) Text(limit int) string {
	var b strings.Builder
	switch {
	case x.Host.IsZero():
		fmt.Fprintf(&b, "%s: no host in it that could match an identifier\n", x.Address)
	case x.Host.Addr.IsValid():
		fmt.Fprintf(&b, "%s: looked up as the address %s\n", x.Address, x.Host)
	default:
		fmt.Fprintf(&b, "%s: looked up as the name %s\n", x.Address, x.Host)
	}
	if x.Serving < 0 {
		b.WriteString("nobody would serve it: a dial fails with \"No agent available\"\n")
	} else {
		fmt.Fprintf(&b, "served by %s\n", x.Managers[x.Serving].Strategy)
	}
	for i, view := range x.Managers {
		fmt.Fprintf(&b, "%d. %s: keys %d, backends %d\n", i+1, view.Strategy, view.Keys, view.Backends)
		if view.Why != "" {
			fmt.Fprintf(&b, "   %s\n", view.Why)
		}
		for _, m := range view.Matches {
			fmt.Fprintf(&b, "   %s\n", m.Key)
			for j, c := range m.Candidates {
				if j == limit {
					fmt.Fprintf(&b, "     and %d more\n", len(m.Candidates)-limit)
					break
				}
				why := c.Why
				if why == "" {
					why = "after those above"
				}
				fmt.Fprintf(&b, "     agent %s, load %d: %s\n", c.AgentID, c.Load, why)
			}
		}
	}
	if len(x.Others) > 0 {
		b.WriteString("not considered:\n")
	}
	for i, o := range x.Others {
		if i == limit {
			fmt.Fprintf(&b, "  and %d more\n", len(x.Others)-limit)
			break
		}
		fmt.Fprintf(&b, "  agent %s: %s\n", o.AgentID, strings.Join(o.Why, "; "))
	}
	return b.String()
}

// noMatch says why a manager has nothing for host.
func noMatch(c Count, host wire.Host) string {
	switch {
	case c.Backends == 0:
		return "no connected agent is here: " + admission(c.Strategy)
	case c.Strategy == DestCIDR && !host.Addr.IsValid():
		return "prefixes cover addresses, and this is a name"
	case c.Strategy == DestCIDR:
		return "no prefix covers it"
	}
	return "no host, address or pattern equals it"
}

// admission says what brings an agent into a manager.
func admission(s Strategy) string {
	switch s {
	case DestHost:
		return "it takes agents that present host, ipv4 or ipv6"
	case DestCIDR:
		return "it takes agents that present cidr"
	case DefaultRoute:
		return "it takes agents that present default-route=true"
	}
	return "it takes agents that do not present exclude-default=true"
}

// absent says why an agent with these identifiers is no candidate of s for host.
func absent(s Strategy, ids wire.Identifiers, host wire.Host) string {
	hosts := len(ids.Hosts) + len(ids.HostPatterns) + len(ids.Addrs)
	switch {
	case s == DestHost && hosts == 0:
		return "presents no host, ipv4 or ipv6"
	case s == DestHost:
		return fmt.Sprintf("none of its hosts, patterns and addresses (%d) is this one", hosts)
	case s == DestCIDR && len(ids.CIDRs) == 0:
		return "presents no cidr"
	case s == DestCIDR && !host.Addr.IsValid():
		return "its prefixes cover addresses, and this is a name"
	case s == DestCIDR:
		return fmt.Sprintf("none of its prefixes (%d) covers it", len(ids.CIDRs))
	case s == DefaultRoute:
		return "does not present default-route=true"
	}
	return "opted out with exclude-default=true"
}
