package backend

import (
	"net/netip"
	"strings"

	"github.com/gaissmai/bart"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// manager is one strategy with its storage. The router's lock guards it.
type manager[B any] interface {
	// join seats e in the set of each key that it presents for this strategy.
	join(e *entry[B])
	// left is called after e has left s, one of this manager's sets.
	left(s *set[B], e *entry[B])
	// next finds the sets that serve h, best first: c is start, then what the
	// call before returned. It returns nil when there is none left.
	next(h wire.Host, c cursor) (*set[B], cursor)
	// keys is the number of distinct keys.
	keys() int
}

// cursor is a manager's own note of where a search goes on.
type cursor int

const start cursor = -1

func newManager[B any](s Strategy) manager[B] {
	switch s {
	case DestHost:
		return &hostManager[B]{names: map[string]*set[B]{}, suffixes: map[string]*set[B]{}, addrs: map[netip.Addr]*set[B]{}}
	case DestCIDR:
		return &cidrManager[B]{table: &bart.Table[*set[B]]{}}
	case DefaultRoute:
		return newAgentManager[B](func(i wire.Identifiers) bool { return i.DefaultRoute })
	}
	return newAgentManager[B](func(i wire.Identifiers) bool { return !i.ExcludeDefault })
}

// agentManager serves any destination with all agents that it takes: the
// strategies defaultRoute and default. Its keys are agent IDs.
type agentManager[B any] struct {
	takes  func(wire.Identifiers) bool
	all    set[B]
	agents map[string]int // links by agent ID
}

func newAgentManager[B any](takes func(wire.Identifiers) bool) *agentManager[B] {
	m := &agentManager[B]{takes: takes, agents: map[string]int{}}
	m.all.owner = m
	return m
}

func (m *agentManager[B]) join(e *entry[B]) {
	if m.takes(e.member.Identifiers) {
		m.all.add(e)
		m.agents[e.member.AgentID]++
	}
}

func (m *agentManager[B]) left(_ *set[B], e *entry[B]) {
	id := e.member.AgentID
	if m.agents[id]--; m.agents[id] == 0 {
		delete(m.agents, id)
	}
}

func (m *agentManager[B]) next(_ wire.Host, c cursor) (*set[B], cursor) {
	if c == start {
		return &m.all, 0
	}
	return nil, c
}

func (m *agentManager[B]) keys() int { return len(m.agents) }

// hostManager is the strategy destHost: exact names and addresses, then
// patterns, the longest suffix first. Names, suffixes and addresses are kept
// apart, so that none can be taken for another.
type hostManager[B any] struct {
	names    map[string]*set[B]
	suffixes map[string]*set[B] // by what follows the star: ".example.com"
	addrs    map[netip.Addr]*set[B]
}

func (m *hostManager[B]) join(e *entry[B]) {
	ids := e.member.Identifiers
	for _, name := range ids.Hosts {
		seatAt(m.names, name, e, set[B]{key: key{name: name}, owner: m})
	}
	for _, suffix := range ids.HostPatterns {
		seatAt(m.suffixes, suffix, e, set[B]{key: key{suffix: suffix}, owner: m})
	}
	for _, addr := range ids.Addrs {
		seatAt(m.addrs, addr, e, set[B]{key: key{addr: addr}, owner: m})
	}
}

// seatAt seats e in the set at k, which starts as empty.
func seatAt[K comparable, B any](sets map[K]*set[B], k K, e *entry[B], empty set[B]) {
	s := sets[k]
	if s == nil {
		s = &empty
		sets[k] = s
	}
	s.add(e)
}

func (m *hostManager[B]) left(s *set[B], _ *entry[B]) {
	if s.len() > 0 {
		return
	}
	switch {
	case s.key.name != "":
		delete(m.names, s.key.name)
	case s.key.suffix != "":
		delete(m.suffixes, s.key.suffix)
	default:
		delete(m.addrs, s.key.addr)
	}
}

// next uses the cursor as the offset in the name from which the next dot is
// looked for.
func (m *hostManager[B]) next(h wire.Host, c cursor) (*set[B], cursor) {
	if c == start {
		c = 0
		s := m.names[h.Name]
		if h.Addr.IsValid() {
			s = m.addrs[h.Addr]
		}
		if s != nil {
			return s, c
		}
	}
	if len(m.suffixes) == 0 {
		return nil, c
	}
	for {
		dot := strings.IndexByte(h.Name[c:], '.')
		if dot < 0 {
			return nil, c
		}
		c += cursor(dot)
		s := m.suffixes[h.Name[c:]]
		c++
		if s != nil {
			return s, c
		}
	}
}

func (m *hostManager[B]) keys() int { return len(m.names) + len(m.suffixes) + len(m.addrs) }

// cidrManager is the strategy destCIDR: prefixes that cover the destination's
// address, the longest first. A name has no address here and finds nothing.
type cidrManager[B any] struct {
	table *bart.Table[*set[B]]
}

func (m *cidrManager[B]) join(e *entry[B]) {
	for _, prefix := range e.member.Identifiers.CIDRs {
		s, ok := m.table.Get(prefix)
		if !ok {
			s = &set[B]{key: key{prefix: prefix}, owner: m}
			m.table.Insert(prefix, s)
		}
		s.add(e)
	}
}

func (m *cidrManager[B]) left(s *set[B], _ *entry[B]) {
	if s.len() == 0 {
		m.table.Delete(s.key.prefix)
	}
}

// next uses the cursor as the length of the prefix that was found last.
func (m *cidrManager[B]) next(h wire.Host, c cursor) (*set[B], cursor) {
	var s *set[B]
	switch {
	case !h.Addr.IsValid() || c == 0:
		return nil, c
	case c == start:
		s, _ = m.table.Lookup(h.Addr)
	default:
		shorter, err := h.Addr.Prefix(int(c) - 1)
		if err != nil {
			return nil, c
		}
		s, _ = m.table.LookupPrefix(shorter)
	}
	if s == nil {
		return nil, c
	}
	return s, cursor(s.key.prefix.Bits())
}

func (m *cidrManager[B]) keys() int { return m.table.Size() }
