package oldpeers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Who chooses which number, and what it is good for. COMPAT 1.5, 9.2.

// Two clients happen to choose the same random; in the reference the second one
// takes the first one's answer.
func TestTwoClientsWithOneRandom(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		first, second := s.client(), s.client()
		first.Send(dialReq(7))
		expect(t, s.agent.Peer, dialReq(7)) // unchanged as long as it is free
		second.Send(dialReq(7))
		other := s.agent.ExpectDial(endpointAddress)
		if other.DialID == 7 || other.DialID <= 0 {
			t.Fatalf("the agent is asked with random %d again", other.DialID)
		}
		s.wantPending(2)
		s.agent.Send(dialErr(7, "connection refused"), dialRsp(other.DialID, 2))
		expect(t, first.Peer, dialErr(7, "connection refused"))
		wantEOF(t, first.Peer)
		expect(t, second.Peer, dialRsp(7, 2)) // each its own answer, with its own random
		(&tunnel{t: t, client: second, agent: s.agent, id: 2}).works()
	})
}

// The same across two agents, and one client gives up: the other's dial goes on.
func TestGivingUpOneOfTwoEqualRandoms(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		first, second := s.client(), s.client()
		first.Send(dialReq(7))
		expect(t, s.agent.Peer, dialReq(7))
		second.Send(dialReq(7))
		other := s.agent.ExpectDial(endpointAddress).DialID
		first.Send(dialCls(7))
		expect(t, s.agent.Peer, dialCls(7))
		wantEOF(t, first.Peer)
		s.agent.Send(dialRsp(other, 2))
		expect(t, second.Peer, dialRsp(7, 2))
		s.agent.Send(dialErr(7, "canceled"))
		(&tunnel{t: t, client: second, agent: s.agent, id: 2}).works()
	})
}

// Randoms at the edges: only the client has to understand them.
func TestOddRandoms(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for i, random := range []wire.DialID{0, -1, -1 << 63, 1<<63 - 1} {
			c, id := s.client(), wire.ConnectionID(i+2)
			c.Send(dialReq(random))
			k := s.agent.ExpectDial(endpointAddress)
			if k.DialID <= 0 {
				t.Errorf("random %d reaches the agent as %d", random, k.DialID)
			}
			s.agent.Send(dialRsp(k.DialID, id))
			expect(t, c.Peer, dialRsp(random, id))
			(&tunnel{t: t, client: c, agent: s.agent, id: id}).works()
		}
	})
}

// Agents count for themselves, and clients see the agent's number.
func TestConnectionIDsOfTwoAgents(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		tn := s.open(s.client(), b, 1) // the neighbour has 1 of the other agent
		tn.works()
		s.neighbour.works()
		b.Send(closeRsp(1, ""))
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
		tn = s.open(s.client(), b, 1<<40) // any positive number will do
		tn.works()
		tn.closeByClient()
	})
}

// Two live streams of one agent ID: a number belongs to its stream. The reference
// knows only (agent ID, number) and mixes the connections up.
func TestTwoStreamsOfOneAgentID(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		twin := s.connect("a")
		s.later(300 * time.Millisecond) // an old agent's second stream waits 250 ms
		tn := s.open(s.client(), twin, 1)
		tn.works()
		s.neighbour.works()
		if n := s.number("konnectivity_network_proxy_server_ready_backends"); n != 1 {
			t.Errorf("one agent ID counts %d times", n)
		}
		twin.Close()
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
		if n := s.number("konnectivity_network_proxy_server_ready_backends"); n != 1 {
			t.Errorf("%d agent IDs are ready", n)
		}
	})
}

// An old agent that wants more servers than it can find opens a second stream every
// second and drops it without a word (6.2). No dial may ever go there.
func TestDuplicatesOfAnOldAgent(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for range 5 {
			dup := s.connect("a")
			tn := s.opened(2)
			dup.ExpectNothing()
			dup.Close()
			tn.works()
			tn.closeByClient()
			s.later(time.Second)
		}
	})
}

// An old agent has lost its stream and comes back before the server has noticed:
// after 250 ms the new stream serves, beside what may be left of the old one; and
// when the old one is given up nothing happens to the new one.
func TestOldAgentComesBack(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(drain()) // so that the new one has the dials
		back := s.connect("a")
		s.opened(2).closeByClient() // not ready yet
		s.later(250 * time.Millisecond)
		tn := s.open(s.client(), back, 1)
		tn.works()
		s.agent.Close()
		expect(t, s.neighbour.client.Peer, closeRsp(1, ""))
		wantEOF(t, s.neighbour.client.Peer)
		s.neighbour = nil
		tn.works()
		s.open(s.client(), back, 2).works() // numbers count from 1 on each stream
	})
}

// The oldest stream of an agent ID is not the only one: when it drains, a newer one
// is used. 7.2, 9.2.
func TestNewerStreamOfADrainingAgent(t *testing.T) {
	for _, strategy := range []backend.Strategy{backend.Default, backend.DefaultRoute, backend.DestHost} {
		cfg := config()
		cfg.Strategies = []backend.Strategy{strategy}
		withBareServer(t, cfg, func(t *testing.T, s *stage) {
			hello := link.AgentHello{AgentID: "a", Identifiers: "default-route=true&host=node"}
			oldest := s.connectWith(hello)
			newer := s.connectWith(hello)
			s.later(time.Second)
			oldest.Send(drain())
			synctest.Wait()
			for id := range wire.ConnectionID(5) {
				s.open(s.client(), newer, id+1)
			}
			synctest.Wait()
			oldest.ExpectNothing()
		})
	}
}

// A frozen old agent: HTTP/2 keepalive finds it out within 25 s (7.6, 11), and its
// tunnels end as with any loss.
func TestFrozenOldAgent(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		tn := s.open(s.client(), b, 1)
		tn.works()
		s.net.ShapeBoth("agent b", agents, tunneltest.Shape{Stall: true})
		start := time.Now()
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
		if d := time.Since(start); d > 26*time.Second {
			t.Errorf("it took %v", d)
		}
		s.wantTunnels(1)
	})
}

// An old agent that is only idle stays for hours, and is sent nothing.
func TestIdleOldAgent(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		s.later(3 * time.Hour)
		s.agent.ExpectNothing()
		tn.client.ExpectNothing()
		tn.works()
	})
}
