package agentlink

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// identity is which link of which process of which agent a link is. An old agent
// has neither instance nor slot, so its links cannot be told apart.
type identity struct {
	agentID, instance, slot string
}

// succeeds reports whether a link of identity i stands in the place of one of o:
// the agent has reconnected.
func (i identity) succeeds(o identity) bool { return i.instance != "" && i == o }

// enter makes a known, so that it is counted and can be told things.
func (s *Server) enter(a *agentLink) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		s.obs.Refused(RefusedDraining)
		return status.Error(codes.Unavailable, errDraining.Error())
	}
	a.second = len(s.links[a.id.agentID]) > 0
	s.links[a.id.agentID] = append(s.links[a.id.agentID], a)
	return nil
}

// arm lets a become a backend when its time has come. The agent has its headers.
func (s *Server) arm(a *agentLink) {
	switch {
	case a.ext.Has(wire.ExtReady):
		// READY will come.
	case a.second:
		s.mu.Lock()
		defer s.mu.Unlock()
		if a.stage == waiting {
			a.delay = time.AfterFunc(s.cfg.JoinDelay, func() { s.join(a) })
		}
	default:
		s.join(a)
	}
}

// join makes a a backend, and ends the links whose place it takes. Those stop
// being backends first and are killed after, so that no dial falls between.
func (s *Server) join(a *agentLink) {
	s.mu.Lock()
	if a.stage != waiting {
		s.mu.Unlock()
		return
	}
	a.stage = next(a.stage, ready)
	s.router.Join(a.peer, a.ids)
	var old []*agentLink
	twins := false
	for _, o := range s.links[a.id.agentID] {
		switch {
		case o == a:
		case a.id.succeeds(o.id):
			s.quit(o, replaced)
			old = append(old, o)
		case o.stage == joined && (a.id.instance == "" || a.id.instance != o.id.instance):
			twins = true
		}
	}
	s.mu.Unlock()
	for _, o := range old {
		s.obs.LinkReplaced()
		o.link.Kill(errReplaced)
	}
	if twins {
		s.obs.DuplicateAgentID(a.id.agentID)
		a.log.Info("Another process has the same agent ID (or an old agent reconnected before its last link was given up); both serve", "instance", a.id.instance)
	}
}

// quit takes o out of the routing. mu is held.
func (s *Server) quit(o *agentLink, e event) {
	if o.stage == joined {
		s.router.Leave(o.peer)
	}
	o.stage = next(o.stage, e)
	if o.delay != nil {
		o.delay.Stop()
	}
}

// retire takes a out of the routing for good.
func (s *Server) retire(a *agentLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quit(a, ended)
}

// leave forgets a, which has ended.
func (s *Server) leave(a *agentLink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quit(a, ended)
	id := a.id.agentID
	if i := slices.Index(s.links[id], a); i >= 0 {
		s.links[id] = slices.Delete(s.links[id], i, i+1)
	}
	if len(s.links[id]) == 0 {
		delete(s.links, id)
	}
}
