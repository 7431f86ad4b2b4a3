package backend

import (
	"cmp"
	"slices"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Explanation says who would serve a destination and why the others would not.
// It is a picture of one moment, for people; nothing routes by it.
type Explanation[B Backend] struct {
	Address string
	Host    wire.Host // what was looked for; zero if Address has no host
	// Managers in the order in which they are asked.
	Managers []ManagerView[B]
	// Serving is the index in Managers of the one that would serve; -1 for none.
	Serving int
	// Others are the agents that no manager has for this destination.
	Others []Other[B]
}

// ManagerView is one manager's part of an Explanation.
type ManagerView[B Backend] struct {
	Count
	// Matches are the keys that cover the destination, best first.
	Matches []Match[B]
	// Why says why there is no match; "" if there is one.
	Why string
}

// Match is one key that covers the destination, with its backends.
type Match[B Backend] struct {
	Key        string // such as "prefix 10.1.0.0/16"
	Candidates []Candidate[B]
}

// Candidate is a backend that a dial may come to.
type Candidate[B Backend] struct {
	Backend  B
	AgentID  string
	Zone     string
	Load     int64
	Draining bool
	Suspect  bool
	// Serves is true for those among which a first attempt chooses.
	Serves bool
	// Why says, in words, why it serves or why it comes later.
	Why string
	// order among the candidates of one match: those with the same are equals.
	order int
}

// Other is a backend that is no candidate.
type Other[B Backend] struct {
	Backend B
	AgentID string
	// Why has one line for each manager, in their order.
	Why []string
}

// Explain says which manager and which backends would serve address, and why
// the others would not. It costs time in proportion to the number of backends,
// and holds up joins meanwhile: it is for people.
func (r *Router[B]) Explain(address string) Explanation[B] {
	host := wire.CanonicalHost(address)
	x := Explanation[B]{Address: address, Host: host, Serving: -1}
	named := map[B]bool{}
	r.mu.RLock()
	rest := make([]*entry[B], 0, len(r.entries))
	for i, m := range r.managers {
		view := ManagerView[B]{Count: Count{r.strategies[i], m.keys(), r.backends[i]}}
		for s, c := m.next(host, start); s != nil; s, c = m.next(host, c) {
			if match := r.match(s); len(match.Candidates) > 0 {
				view.Matches = append(view.Matches, match)
			}
		}
		x.Managers = append(x.Managers, view)
	}
	for i := range x.Managers {
		for _, match := range x.Managers[i].Matches {
			for _, c := range match.Candidates {
				named[c.Backend] = true
			}
		}
	}
	for b, e := range r.entries {
		if !named[b] {
			rest = append(rest, e)
		}
	}
	r.mu.RUnlock()

	x.judge()
	for i := range x.Managers {
		if v := &x.Managers[i]; len(v.Matches) == 0 {
			v.Why = noMatch(v.Count, host)
		}
	}
	x.Others = r.others(rest, host)
	return x
}

// match describes one set, its candidates in the order of preference.
func (r *Router[B]) match(s *set[B]) Match[B] {
	m := Match[B]{Key: s.key.String()}
	for z, list := range s.lists {
		for _, p := range list {
			c := Candidate[B]{Backend: p.backend, AgentID: p.entry.member.AgentID, Zone: p.entry.member.Identifiers.FailureZone,
				Load: p.backend.Load(), Draining: p.backend.Draining(), Suspect: p.backend.Suspect()}
			health := 0
			switch {
			case c.Suspect:
				health, c.Why = 2, "left a dial unanswered and has been silent since: only if nothing else is left"
			case c.Draining:
				health, c.Why = 1, "draining: only if nothing else is left"
			case zone(z) == far && c.Zone == "":
				c.Why = "has no failure zone, while this server prefers " + r.zone
			case zone(z) == far:
				c.Why = "in failure zone " + c.Zone + ", while this server prefers " + r.zone
			}
			c.order = health*int(zones) + z
			m.Candidates = append(m.Candidates, c)
		}
	}
	slices.SortFunc(m.Candidates, func(a, b Candidate[B]) int {
		return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Load, b.Load), cmp.Compare(a.AgentID, b.AgentID))
	})
	return m
}

// judge marks the first match as the one that serves, and all others as later.
func (x *Explanation[B]) judge() {
	first := ""
	for i, view := range x.Managers {
		for _, match := range view.Matches {
			for j := range match.Candidates {
				c := &match.Candidates[j]
				switch {
				case first != "":
					c.Why = joinWords("only if every backend of "+first+" fails", c.Why)
				case c.order == match.Candidates[0].order:
					c.Serves = true
					c.Why = joinWords("serves", c.Why)
				}
			}
			if first == "" {
				first = view.Strategy.String() + " (" + match.Key + ")"
				x.Serving = i
			}
		}
	}
}

func joinWords(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// others says for each entry why no manager has it for host.
func (r *Router[B]) others(rest []*entry[B], host wire.Host) []Other[B] {
	list := make([]Other[B], 0, len(rest))
	for _, e := range rest {
		o := Other[B]{Backend: e.backend, AgentID: e.member.AgentID}
		for _, s := range r.strategies {
			o.Why = append(o.Why, s.String()+": "+absent(s, e.member.Identifiers, host))
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Other[B]) int { return cmp.Compare(a.AgentID, b.AgentID) })
	return list
}
