package oldpeers

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The ends of tunnels between old clients and old agents. COMPAT 1.7.

func TestCloseByClient(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		tn.client.Send(data(2, "last words"), closeReq(2))
		expect(t, s.agent.Peer, data(2, "last words"), closeReq(2))
		// The stream is finished for what the client sends, whatever it is...
		tn.client.Send(data(2, "late"), closeReq(2), data(3, "foreign"), dialReq(5), drain())
		synctest.Wait()
		s.agent.ExpectNothing()
		tn.client.ExpectNothing()
		// ...but it stays open for the answer, and for what the agent had read already.
		s.agent.Send(data(2, "flushed"), closeRsp(2, ""))
		expect(t, tn.client.Peer, data(2, "flushed"), closeRsp(2, ""))
		wantEOF(t, tn.client.Peer)
		s.wantTunnels(1)
	})
}

// An agent may be slow to answer: the reference's flushes first.
func TestCloseByClientIsAnsweredLate(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.client.Send(data(2, "x"), closeReq(2))
		expect(t, s.agent.Peer, data(2, "x"), closeReq(2))
		s.later(9 * time.Second)
		tn.client.ExpectNothing()
		s.agent.Send(closeRsp(2, ""))
		expect(t, tn.client.Peer, closeRsp(2, ""))
		wantEOF(t, tn.client.Peer)
	})
}

// An agent that never answers must keep neither the client nor anything else for
// ever. The public library waits 10 s and ends its stream; others may wait.
func TestCloseByClientIsNotAnswered(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		impatient, patient := s.opened(2), s.opened(3)
		impatient.client.Send(closeReq(2))
		expect(t, s.agent.Peer, closeReq(2))
		patient.client.Send(data(3, "x"), closeReq(3))
		expect(t, s.agent.Peer, data(3, "x"), closeReq(3))
		s.later(10 * time.Second)
		impatient.client.Close()
		s.later(19 * time.Second)
		patient.client.ExpectNothing()
		if k := patient.client.ExpectOn(wire.CloseResponse, 3); k.Error == "" {
			t.Errorf("closed with %s", line(k))
		}
		wantEOF(t, patient.client.Peer)
		s.later(2 * time.Second)
		s.wantTunnels(1)
		// The agent was asked once more, when it was given up. What it says at last
		// is no surprise.
		expect(t, s.agent.Peer, closeReq(2), closeReq(3))
		s.agent.Send(data(2, "late"), closeRsp(2, ""), closeRsp(3, "Unknown connectID"))
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// The agent does not know the connection (any more): its answer is passed on.
func TestCloseOfWhatTheAgentDoesNotKnow(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.client.Send(closeReq(2))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, "Unknown connectID"))
		expect(t, tn.client.Peer, closeRsp(2, "Unknown connectID"))
		wantEOF(t, tn.client.Peer)

		tn = s.opened(3)
		tn.up("x")
		s.agent.Send(closeRsp(3, "unrecognized connectID"))
		expect(t, tn.client.Peer, closeRsp(3, "unrecognized connectID"))
		wantEOF(t, tn.client.Peer)
	})
}

// CLOSE_REQ cannot be sent because the agent is gone: the reference says
// "CLOSE_REQ to backend failed"; ours has said before that the tunnel is over.
func TestCloseWhenTheAgentIsGone(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		tn := s.open(s.client(), b, 1)
		tn.up("x")
		b.Close()
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)

		// Both at once: one answer, whichever comes first.
		b = s.connect("b")
		tn = s.open(s.client(), b, 1)
		tn.up("x")
		go b.Close()
		_ = tn.client.Stream().SendMsg(&wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
		s.wantTunnels(1)
	})
}

func TestCloseByEndpoint(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.up("request")
		s.agent.Send(data(2, "rest"), closeRsp(2, ""))
		expect(t, tn.client.Peer, data(2, "rest"), closeRsp(2, ""))
		// The stream ends here; in the reference it goes on, and what the client
		// still sends is a burden to the agent.
		_ = tn.client.Stream().SendMsg(&wire.Packet{Type: wire.CloseRequest, ConnectionID: 2})
		wantEOF(t, tn.client.Peer)
		synctest.Wait()
		s.agent.ExpectNothing()
		s.wantTunnels(1)

		// An agent that answers late data with its usual text is not passed on.
		s.agent.Send(closeRsp(2, "unrecognized connectID"))
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// The client's data and the endpoint's close cross.
func TestCloseByEndpointWhileTheClientSends(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.up("a")
		tn.client.Send(data(2, "b"))
		s.agent.Send(closeRsp(2, ""))
		expect(t, tn.client.Peer, closeRsp(2, ""))
		wantEOF(t, tn.client.Peer)
		synctest.Wait()
		s.agent.Skip(wire.Data) // it may have left before
		s.agent.ExpectNothing()
	})
}

// agentLosses are the ways in which a server loses an agent's stream.
func agentLosses() map[string]func(a *tunneltest.AgentPeer, net *tunneltest.Network) {
	return map[string]func(*tunneltest.AgentPeer, *tunneltest.Network){
		"cancelled":   func(a *tunneltest.AgentPeer, _ *tunneltest.Network) { a.Close() },
		"half-closed": func(a *tunneltest.AgentPeer, _ *tunneltest.Network) { a.CloseSend() },
		"cut":         func(_ *tunneltest.AgentPeer, net *tunneltest.Network) { net.Cut("agent b", "") },
		"nonsense":    func(a *tunneltest.AgentPeer, _ *tunneltest.Network) { a.SendRaw([]byte{0xff, 0xff, 0xff}) },
	}
}

// Every connection is answered with CLOSE_RSP without an error, behind what had
// arrived, and every pending dial with an error (9.2; the reference forgets it).
func TestAgentLost(t *testing.T) {
	for name, lose := range agentLosses() {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *stage) {
				s.neighbour.agent.Send(drain()) // so that b has the dials
				b := s.connect("b")
				first, second := s.open(s.client(), b, 1), s.open(s.client(), b, 2)
				first.works()
				second.up("x")
				b.Send(data(2, "in flight"))
				expect(t, second.client.Peer, data(2, "in flight"))
				pending := s.client()
				random := s.dial(pending, b)
				start := time.Now()
				lose(b, s.net)
				expect(t, first.client.Peer, closeRsp(1, ""))
				wantEOF(t, first.client.Peer)
				expect(t, second.client.Peer, closeRsp(2, ""))
				wantEOF(t, second.client.Peer)
				// The pending dial moves to the agent that is left.
				expect(t, s.agent.Peer, dialReq(random))
				s.agent.Send(dialRsp(random, 2))
				expect(t, pending.Peer, dialRsp(random, 2))
				if d := time.Since(start); d > time.Second {
					t.Errorf("it took %v", d)
				}
				s.wantTunnels(2)
				(&tunnel{t: t, client: pending, agent: s.agent, id: 2}).closeByClient()
			})
		})
	}
}

// Without another agent the pending dial is answered at once.
func TestOnlyAgentLostDuringTheDial(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		random := s.dial(c, s.agent)
		s.agent.Close()
		k := c.Expect(wire.DialResponse)
		if k.DialID != random || k.ConnectionID != 0 || !strings.Contains(k.Error, "lost") {
			t.Errorf("answered %s", line(k))
		}
		wantEOF(t, c.Peer)
		expect(t, s.neighbour.client.Peer, closeRsp(1, ""))
		wantEOF(t, s.neighbour.client.Peer)
		s.neighbour = nil
		s.wantPending(0)
		if n := s.dialFailures("backend_close"); n != 1 {
			t.Errorf("%d failures were counted", n)
		}
	})
}

// What had arrived from an agent before it was lost is still delivered.
func TestDataBeforeTheAgentIsLost(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		tn := s.open(s.client(), b, 1)
		tn.up("x")
		tn.client.SetReading(false)
		var want []byte
		for i := range 40 {
			chunk := []byte(strings.Repeat(string(rune('a'+i%26)), 4096)) // as the reference's agent reads
			want = append(want, chunk...)
			b.Send(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(chunk)})
		}
		synctest.Wait()
		b.Close()
		synctest.Wait()
		tn.client.SetReading(true)
		tn.client.ExpectData(1, want)
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
	})
}

// The agent is told once; its answer goes to nobody.
func TestClientLost(t *testing.T) {
	for name, leave := range map[string]func(c *tunneltest.ClientPeer){
		"cancelled":   func(c *tunneltest.ClientPeer) { c.Close() },
		"half-closed": func(c *tunneltest.ClientPeer) { c.CloseSend() },
	} {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *stage) {
				tn := s.opened(2)
				tn.works()
				leave(tn.client)
				expect(t, s.agent.Peer, closeReq(2))
				s.agent.Send(data(2, "still read"), closeRsp(2, ""))
				synctest.Wait()
				s.agent.ExpectNothing()
				tn.client.Skip(wire.CloseResponse) // nobody has to read it
				if err := tn.client.ExpectEnd(); name == "half-closed" && !errors.Is(err, io.EOF) {
					t.Errorf("ended with %v", err)
				}
				s.wantTunnels(1)
			})
		})
	}
}

// A client whose whole connection breaks loses all its streams at once.
func TestClientsConnectionLost(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		dialing := s.client()
		random := s.dial(dialing, s.agent)
		s.net.Cut("client", front) // the neighbour's too
		s.later(time.Second)
		got := map[string]int{}
		for _, k := range s.agent.Skip() {
			got[line(k)]++
		}
		if len(got) != 3 || got[line(closeReq(1))] != 1 || got[line(closeReq(2))] != 1 || got[line(dialCls(random))] != 1 {
			t.Errorf("the agent got %v", got)
		}
		s.agent.Send(closeRsp(1, ""), closeRsp(2, ""))
		s.neighbour = nil
		s.wantTunnels(0)
		s.wantPending(0)
	})
}
