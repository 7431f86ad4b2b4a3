package oldpeers

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Dials of old clients through old agents. COMPAT 1.7.

func TestDialOK(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for _, random := range []wire.DialID{1, 1<<63 - 1} {
			c := s.client()
			req := wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "name.ns.svc:443", DialID: random}
			c.Send(req)
			expect(t, s.agent.Peer, req) // the same packet, with nothing of ours in it
			s.wantPending(1)
			id := wire.ConnectionID(random%100) + 1
			s.agent.Send(dialRsp(random, id))
			expect(t, c.Peer, dialRsp(random, id))
			s.wantPending(0)
			s.wantTunnels(2)
			(&tunnel{t: t, client: c, agent: s.agent, id: id}).closeByClient()
			s.wantTunnels(1)
		}
	})
}

// The address is the agent's to understand.
func TestAddressesAreNotLookedInto(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for _, address := range []string{"", "x", ":80", "*", "fd00::1", "[fd00::1]:80", "a b", "127.0.0.1:99999"} {
			c, random := s.client(), s.random()
			req := wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: address, DialID: random}
			c.Send(req)
			expect(t, s.agent.Peer, req)
			text := "dial tcp: missing address"
			s.agent.Send(dialErr(random, text))
			expect(t, c.Peer, dialErr(random, text))
			wantEOF(t, c.Peer)
		}
	})
}

// The answer, data and the end in one burst reach the client in this order.
func TestAnswerDataAndEndAtOnce(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		random := s.dial(c, s.agent)
		s.agent.Send(dialRsp(random, 2), data(2, "banner"), closeRsp(2, ""))
		expect(t, c.Peer, dialRsp(random, 2))
		c.ExpectData(2, []byte("banner"))
		expect(t, c.Peer, closeRsp(2, ""))
		wantEOF(t, c.Peer)
	})
}

// What the reference's agents say, and what clients then hear. The text passes
// unchanged; the stream ends behind it (9.2), where the reference leaves it open.
func TestDialFailsAtTheAgent(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for _, text := range []string{
			"dial tcp 127.0.0.1:1: connect: connection refused",
			"dial tcp: lookup nowhere on 10.0.0.10:53: no such host",
			"dial tcp 10.1.2.3:80: i/o timeout",
			"dial tcp: address x: missing port in address",
			"dial tcp: missing address",
			"anything else",
		} {
			c := s.client()
			random := s.dial(c, s.agent)
			s.agent.Send(dialErr(random, text))
			expect(t, c.Peer, dialErr(random, text))
			wantEOF(t, c.Peer)
			s.wantPending(0)
		}
		if n := s.dialFailures("error_response"); n != 6 {
			t.Errorf("%d failures were counted, want 6", n)
		}
		s.wantTunnels(1)
	})
}

// A failure that is the agent's own is tried with another agent; the client hears
// nothing of it.
func TestDialFailsAtOneOfTwoAgents(t *testing.T) {
	for _, text := range []string{
		"dial tcp 10.1.2.3:80: connect: no route to host",
		"dial tcp 10.1.2.3:80: socket: too many open files",
	} {
		withServer(t, func(t *testing.T, s *stage) {
			b := s.connect("b")
			c, random := s.client(), s.random()
			c.Send(dialReq(random))
			expect(t, b.Peer, dialReq(random)) // it has less to do
			b.Send(dialErr(random, text))
			expect(t, s.agent.Peer, dialReq(random))
			s.agent.Send(dialRsp(random, 2))
			expect(t, c.Peer, dialRsp(random, 2))
			synctest.Wait()
			b.ExpectNothing()
			(&tunnel{t: t, client: c, agent: s.agent, id: 2}).closeByClient()
		})
	}
}

func TestNoAgent(t *testing.T) {
	withBareServer(t, config(), func(t *testing.T, s *stage) {
		c := s.client()
		c.Send(dialReq(7))
		expect(t, c.Peer, dialErr(7, "No agent available"))
		wantEOF(t, c.Peer) // not silent any more (9.2)
		if n := s.dialFailures("no_agent"); n != 1 {
			t.Errorf("%d failures were counted", n)
		}
		// The next one finds the agent that has come meanwhile.
		s.open(s.client(), s.connect("a"), 1).works()
	})
}

// The agent is there but takes nothing, so that the DIAL_REQ cannot be sent. The
// reference waits for ever or retires the agent; ours answers in time, and the
// agent is asked again once it has been heard.
func TestDialThatCannotBeSent(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.SetReading(false)
		filled := make(chan struct{})
		go func() { // until the stream to the agent is full
			defer close(filled)
			_ = s.neighbour.client.Stream().SendMsg(&wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(make([]byte, 3<<20))})
		}()
		synctest.Wait()
		c, random := s.client(), s.random()
		c.Send(dialReq(random))
		start := time.Now()
		expect(t, c.Peer, dialErr(random, "timed out waiting for backend dial"))
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("answered after %v", d)
		}
		wantEOF(t, c.Peer)
		if links := s.server.Status().Links; len(links) != 1 || !links[0].Suspect {
			t.Errorf("the links are %+v", links)
		}
		s.agent.SetReading(true)
		<-filled
		synctest.Wait()
		// What had waited arrives in its turn; a dial that was given up is no loss.
		sum := 0
		for _, k := range s.agent.Skip() {
			switch {
			case k.Type == wire.Data && k.ConnectionID == 1:
				sum += k.Payload.Len()
			case (k.Type == wire.DialRequest || k.Type == wire.DialClose) && k.DialID == random:
			default:
				t.Errorf("the agent got %s", line(k))
			}
		}
		if sum != 3<<20 {
			t.Errorf("%d bytes arrived", sum)
		}
		s.agent.Send(data(1, "heard"))
		expect(t, s.neighbour.client.Peer, data(1, "heard"))
		s.opened(2).closeByClient()
	})
}

func TestBackendDialTimeout(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for i, late := range []wire.Packet{dialRsp(0, 2), dialErr(0, "dial tcp 1.2.3.4:5: i/o timeout")} {
			c := s.client()
			random := s.dial(c, s.agent)
			start := time.Now()
			expect(t, c.Peer, dialErr(random, "timed out waiting for backend dial"))
			if d := time.Since(start); d != 7*time.Second {
				t.Errorf("answered after %v", d)
			}
			wantEOF(t, c.Peer)
			s.wantPending(0)
			expect(t, s.agent.Peer, dialCls(random)) // which an old agent ignores
			late.DialID = random
			s.agent.Send(late)
			if late.ConnectionID != 0 {
				expect(t, s.agent.Peer, closeReq(2))
				s.agent.Send(closeRsp(2, ""))
			}
			synctest.Wait()
			s.agent.ExpectNothing()
			if n := s.dialFailures("unrecognized_response"); n != i+1 {
				t.Errorf("%d late answers were counted, want %d", n, i+1)
			}
		}
		if n := s.dialFailures("backend_dial_timeout"); n != 2 {
			t.Errorf("%d failures were counted", n)
		}
		s.wantTunnels(1)
	})
}

// Without a limit (--backend-dial-timeout=0) the client's own one of 30 s must
// not pass unanswered.
func TestNoBackendDialTimeout(t *testing.T) {
	cfg := config()
	cfg.BackendDialTimeout = 0
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		a, c := s.connect("a"), s.client()
		random := s.dial(c, a)
		s.later(28 * time.Second)
		c.ExpectNothing()
		expect(t, c.Peer, dialErr(random, "timed out waiting for backend dial"))
		wantEOF(t, c.Peer)
	})
}

// leaving are the ways in which a client gives up a dial.
func leaving() map[string]func(c *tunneltest.ClientPeer, random wire.DialID) {
	return map[string]func(*tunneltest.ClientPeer, wire.DialID){
		"DIAL_CLS":   func(c *tunneltest.ClientPeer, random wire.DialID) { c.Send(dialCls(random)) },
		"half-close": func(c *tunneltest.ClientPeer, _ wire.DialID) { c.CloseSend() },
		"loss":       func(c *tunneltest.ClientPeer, _ wire.DialID) { c.Close() },
		"as the library does it": func(c *tunneltest.ClientPeer, random wire.DialID) {
			c.Send(dialCls(random))
			c.Close()
		},
	}
}

// In each case the agent is told (the reference tells it only of lost streams),
// the client is not answered, and what the agent says later is put right.
func TestClientGivesTheDialUp(t *testing.T) {
	for name, leave := range leaving() {
		t.Run(name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *stage) {
				for i, late := range []wire.Packet{dialRsp(0, 2), dialErr(0, "connection refused")} {
					c := s.client()
					random := s.dial(c, s.agent)
					leave(c, random)
					expect(t, s.agent.Peer, dialCls(random))
					s.wantPending(0)
					if err := c.ExpectEnd(); name == "DIAL_CLS" || name == "half-close" {
						if status.Code(err) != codes.Unknown { // io.EOF is no status
							t.Errorf("ended with %v", err)
						}
					}
					late.DialID = random
					s.agent.Send(late)
					if late.ConnectionID != 0 {
						expect(t, s.agent.Peer, closeReq(2))
						s.agent.Send(closeRsp(2, ""))
					}
					synctest.Wait()
					s.agent.ExpectNothing()
					if n := s.dialFailures("unrecognized_response"); n != i+1 {
						t.Errorf("%d late answers were counted, want %d", n, i+1)
					}
				}
				s.wantTunnels(1)
			})
		})
	}
}

func TestDialCloseForAnotherDial(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		c.Send(dialCls(5)) // nothing was dialled
		random := s.dial(c, s.agent)
		c.Send(dialCls(random + 1))
		c.Send(dialCls(s.neighbour.random)) // another's
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(dialRsp(random, 2))
		expect(t, c.Peer, dialRsp(random, 2))
		tn := &tunnel{t: t, client: c, agent: s.agent, id: 2}
		c.Send(dialCls(random + 1))
		tn.works()
		tn.closeByClient()
	})
}

// DIAL_CLS and the answer cross: the client does not use what it has given up, so
// it ends. The reference keeps the connection until the stream ends.
func TestDialCloseAfterTheAnswer(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.client.Send(dialCls(tn.random))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))
		expect(t, tn.client.Peer, closeRsp(2, "dial cancelled by the client"))
		wantEOF(t, tn.client.Peer)
		s.wantTunnels(1)
	})
}

// An agent that gives a dial up is one that was lost for this dial: another one is
// asked, and without any the client is answered. The reference forwards DIAL_CLS.
func TestAgentGivesTheDialUp(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		random := s.dial(c, s.agent)
		s.agent.Send(dialCls(random+1), dialCls(random))
		k := c.Expect(wire.DialResponse)
		if k.DialID != random || k.Error == "" || k.ConnectionID != 0 {
			t.Errorf("answered %s", line(k))
		}
		wantEOF(t, c.Peer)
		if n := s.dialFailures("backend_close"); n != 1 {
			t.Errorf("%d failures were counted", n)
		}

		b := s.connect("b")
		c = s.client()
		random = s.random()
		c.Send(dialReq(random))
		expect(t, b.Peer, dialReq(random))
		b.Send(dialCls(random))
		expect(t, s.agent.Peer, dialReq(random))
		s.agent.Send(dialRsp(random, 2))
		expect(t, c.Peer, dialRsp(random, 2))
		(&tunnel{t: t, client: c, agent: s.agent, id: 2}).closeByClient()
	})
}

// Old servers pass any network on, and old agents dial it (9.2).
func TestOtherNetworks(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for _, protocol := range []string{"udp", "unix", "", "ip4:1"} {
			c := s.client()
			c.Send(wire.Packet{Type: wire.DialRequest, Protocol: protocol, Address: "/run/x.sock", DialID: 9})
			if k := c.Expect(wire.DialResponse); k.DialID != 9 || k.Error == "" || k.ConnectionID != 0 {
				t.Errorf("%q is answered with %s", protocol, line(k))
			}
			wantEOF(t, c.Peer)
		}
		for _, protocol := range []string{"tcp4", "tcp6"} {
			c, req := s.client(), dialReq(s.random())
			req.Protocol = protocol
			c.Send(req)
			expect(t, s.agent.Peer, req)
			s.agent.Send(dialErr(req.DialID, "connection refused"))
			expect(t, c.Peer, dialErr(req.DialID, "connection refused"))
			wantEOF(t, c.Peer)
		}
	})
}
