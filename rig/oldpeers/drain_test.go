package oldpeers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Draining agents, and our server's own end, as old peers see them. COMPAT 1.7
// ("Drain", "Server shutdown"), 7.8, 11.

func TestDrain(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		s.agent.Send(drain(), drain()) // a second one changes nothing
		synctest.Wait()
		// Only the priority for new dials changes.
		s.neighbour.works()
		for id := range wire.ConnectionID(10) {
			s.open(s.client(), b, id+1)
		}
		if n := s.number("konnectivity_network_proxy_server_ready_backends"); n != 2 {
			t.Errorf("%d backends are ready, want 2: draining ones count", n)
		}
		if n := s.number("culvert_server_agent_links", "state", "draining"); n != 1 {
			t.Errorf("%d agents drain", n)
		}
		// Nobody is told anything.
		s.agent.ExpectNothing()
		b.ExpectNothing()
		// If all drain they are used anyway: the one with less to do.
		b.Send(drain())
		synctest.Wait()
		s.opened(2).works()
		// And nothing un-drains a stream: only a new one is not draining.
		c := s.connect("c")
		s.open(s.client(), c, 1).works()
	})
}

// A failed dial does not go from a draining agent to nobody.
func TestDrainingAgentIsTheLastResort(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(drain())
		b := s.connect("b")
		c, random := s.client(), s.random()
		c.Send(dialReq(random))
		expect(t, b.Peer, dialReq(random))
		b.Close()
		expect(t, s.agent.Peer, dialReq(random))
		s.agent.Send(dialRsp(random, 2))
		expect(t, c.Peer, dialRsp(random, 2))
	})
}

// Without a graceful time the frontends get their answer and the process ends.
func TestServerStopsAtOnce(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		pending := s.client()
		random := s.dial(pending, s.agent)
		idle := s.client() // a stream that has not dialled
		synctest.Wait()
		start := time.Now()
		s.stop()
		if k := s.neighbour.client.ExpectOn(wire.CloseResponse, 1); k.Reason != 0 {
			t.Errorf("closed with %s", line(k))
		}
		wantEOF(t, s.neighbour.client.Peer)
		if k := pending.Expect(wire.DialResponse); k.DialID != random || k.Error == "" || k.ConnectionID != 0 {
			t.Errorf("answered %s", line(k))
		}
		wantEOF(t, pending.Peer)
		if err := idle.ExpectEnd(); err == nil {
			t.Error("a stream goes on")
		}
		<-s.ended
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("the server took %v to end", d)
		}
		s.neighbour = nil
	})
}

// With a graceful time an old agent keeps its stream and gets no GOAWAY, which
// would make it cut all its connections within a second; the process ends when
// the last tunnel is closed.
func TestServerStopsGracefully(t *testing.T) {
	cfg := config()
	cfg.GracefulShutdownTimeout = 30 * time.Second
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		var sock *spy
		a := tunneltest.Connect(t, spied(s.net.Dialer("agent a"), &sock), agents, link.AgentHello{AgentID: "a"})
		synctest.Wait()
		tn := s.open(s.client(), a, 1)
		pending := s.client()
		random := s.dial(pending, a)
		s.stop()
		s.later(5 * time.Second)
		a.Send(dialRsp(random, 2)) // a dial that had begun is finished
		expect(t, pending.Peer, dialRsp(random, 2))
		(&tunnel{t: t, client: pending, agent: a, id: 2}).closeByClient()
		s.later(20 * time.Second)
		a.ExpectNothing()
		if n := sock.goneAway(); n != 0 {
			t.Errorf("the agent got %d GOAWAYs: its probe would cut it off", n)
		}
		tn.works()
		if _, err := s.net.Dialer("client")(t.Context(), front); err == nil {
			t.Error("a new client gets in")
		}
		tn.closeByClient()
		s.later(time.Second)
		select {
		case <-s.ended:
		default:
			t.Error("the server goes on without any tunnel")
		}
	})
}

// At the end of the graceful time all is forced closed.
func TestServerStopsAtTheEndOfItsGrace(t *testing.T) {
	cfg := config()
	cfg.GracefulShutdownTimeout = 30 * time.Second
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		tn := s.open(s.client(), s.connect("a"), 1)
		tn.works()
		s.stop()
		s.later(29 * time.Second)
		tn.works()
		k := tn.client.ExpectOn(wire.CloseResponse, 1)
		wantEOF(t, tn.client.Peer)
		if d := time.Since(s.began); d < 30*time.Second || d > 31*time.Second || k.Error == "" {
			t.Errorf("%s after %v", line(k), d)
		}
		<-s.ended
		if d := time.Since(s.began); d > 35*time.Second {
			t.Errorf("the server took %v to end", d)
		}
	})
}
