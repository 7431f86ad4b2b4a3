package agentlink

import (
	"cmp"
	"slices"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Status describes one link at one moment, for /statusz.
type Status struct {
	AgentID, Instance, Slot string
	Address                 string
	Since                   time.Time
	Identifiers             []wire.Identifier
	Extensions              wire.Extensions
	Backend                 bool // dials may come to it
	Draining, Suspect       bool
	Tunnels                 int
	Load                    int64
	LastReceived            time.Time
	MinRTT                  time.Duration // 0 if unknown
}

// Statuses describes all links, sorted by agent ID and age.
func (s *Server) Statuses() []Status {
	links := s.all()
	all := make([]Status, len(links))
	for i, a := range links {
		all[i] = a.status()
	}
	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.AgentID, b.AgentID), a.Since.Compare(b.Since))
	})
	return all
}

// Links is the number of live links.
func (s *Server) Links() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, links := range s.links {
		n += len(links)
	}
	return n
}

func (a *agentLink) status() Status {
	a.srv.mu.Lock()
	backend := a.stage == joined
	a.srv.mu.Unlock()
	return Status{
		AgentID:      a.id.agentID,
		Instance:     a.id.instance,
		Slot:         a.id.slot,
		Address:      a.address,
		Since:        a.since,
		Identifiers:  a.ids.Pairs,
		Extensions:   a.ext,
		Backend:      backend,
		Draining:     a.peer.Draining(),
		Suspect:      a.peer.Suspect(),
		Tunnels:      a.peer.Tunnels(),
		Load:         a.peer.Load(),
		LastReceived: a.link.LastReceived(),
		MinRTT:       a.link.MinRTT(),
	}
}
