package oldpeers

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Who may send what to our server: what is not for it is counted and passed over,
// at any time. COMPAT 1.6. The agent's side is in agent_ignored_test.go.

// notForServer are the packets that clients do not send.
func notFromClients(id wire.ConnectionID, random wire.DialID) []wire.Packet {
	return append([]wire.Packet{
		dialRsp(random, id), dialErr(random, "no"), closeRsp(id, ""), closeRsp(id, "no"), drain(),
	}, unknown(id)...)
}

func TestPacketsThatClientsDoNotSend(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		fresh, dialing, tn := s.client(), s.client(), s.opened(2)
		random := s.dial(dialing, s.agent)
		before := s.packets("from_client", "DIAL_RSP")
		for _, c := range []*tunneltest.ClientPeer{fresh, dialing, tn.client} {
			for _, p := range notFromClients(2, random) {
				c.Send(p)
			}
			c.SendRaw(type99())
			synctest.Wait()
			c.ExpectNothing()
		}
		s.agent.ExpectNothing()
		if n := s.packets("from_client", "DIAL_RSP") - before; n != 6 {
			t.Errorf("%d DIAL_RSP were counted, want 6", n)
		}
		if n := s.packets("from_client", "99"); n != 3 {
			t.Errorf("%d packets of type 99 were counted", n)
		}
		tn.works()
		s.agent.Send(dialRsp(random, 3))
		expect(t, dialing.Peer, dialRsp(random, 3))
		(&tunnel{t: t, client: dialing, agent: s.agent, id: 3}).works()
		s.open(fresh, s.agent, 4).works()
	})
}

func TestPacketsThatAgentsDoNotSend(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		dialing := s.client()
		random := s.dial(dialing, s.agent)
		for _, p := range append([]wire.Packet{
			dialReq(random), dialReq(5), closeReq(1), closeReq(2), closeReq(99),
		}, unknown(1)...) {
			s.agent.Send(p)
		}
		s.agent.SendRaw(type99())
		synctest.Wait()
		s.agent.ExpectNothing()
		dialing.ExpectNothing()
		s.neighbour.client.ExpectNothing()
		s.neighbour.works()
		if r, c, x := s.packets("from_agent", "DIAL_REQ"), s.packets("from_agent", "CLOSE_REQ"), s.packets("from_agent", "99"); r != 2 || c != 3 || x != 1 {
			t.Errorf("counted %d DIAL_REQ, %d CLOSE_REQ, %d of type 99", r, c, x)
		}
		s.agent.Send(dialRsp(random, 2))
		expect(t, dialing.Peer, dialRsp(random, 2))
		(&tunnel{t: t, client: dialing, agent: s.agent, id: 2}).works()
	})
}

// An old agent knows neither READY nor half-close, and nothing of ours is sent to
// it, whatever a new client wants.
func TestNothingOfOursIsSentToOldAgents(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := tunneltest.Proxy(t, s.net.Dialer("client"), front, wire.ExtHalfClose|wire.ExtReason)
		tn := s.open(c, s.agent, 2) // no window, no can_half_close
		tn.works()
		c.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 2})
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(data(2, "goes on"))
		expect(t, c.Peer, data(2, "goes on"))
		s.agent.Send(wire.Packet{Type: wire.HalfClose, ConnectionID: 2}) // it cannot mean that
		s.agent.Send(data(2, "and on"))
		expect(t, c.Peer, data(2, "and on"))
		c.Send(closeReq(2))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))
		expect(t, c.Peer, closeRsp(2, ""))
		wantEOF(t, c.Peer)
	})
}

// Nor to old clients, whatever a new agent says.
func TestNothingOfOursIsSentToOldClients(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(drain())
		young := newAgent(s)
		c := s.client()
		tn := newTunnel(s, c, young, 1)
		if tn.halfCloses {
			t.Error("the agent was told that the client can half-close")
		}
		young.Send(data(1, "x"))
		expect(t, c.Peer, data(1, "x"))
		young.Send(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1, Error: "connection reset by the endpoint", Reason: wire.ReasonReset})
		expect(t, c.Peer, closeRsp(1, "connection reset by the endpoint")) // the text, but no reason
		wantEOF(t, c.Peer)

		c = s.client()
		random := s.random()
		c.Send(dialReq(random))
		k := young.ExpectDial(endpointAddress)
		young.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, Error: "refused by policy", Reason: wire.ReasonRefused})
		expect(t, c.Peer, dialErr(random, "refused by policy"))
		wantEOF(t, c.Peer)
	})
}

// Packets that do not carry what their type says. The reference's server crashes.
func TestMismatchedPacketsFromAgents(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		dialing := s.client()
		random := s.dial(dialing, s.agent)
		for name, message := range mismatched() {
			if name == "DRAIN that has its payload" || name == "DRAIN without payload" {
				continue // these are good DRAINs
			}
			s.agent.SendRaw(message)
			synctest.Wait()
			s.agent.ExpectNothing()
			dialing.ExpectNothing()
			s.neighbour.works()
		}
		s.agent.Send(dialRsp(random, 2))
		expect(t, dialing.Peer, dialRsp(random, 2))
		(&tunnel{t: t, client: dialing, agent: s.agent, id: 2}).closeByClient()
	})
}

// From a client they end the one stream, and its tunnel.
func TestMismatchedPacketsFromClients(t *testing.T) {
	for name, message := range mismatched() {
		harmless := map[string]bool{ // types that say nothing to a server
			"DIAL_RSP without payload": true, "CLOSE_RSP without payload": true, "DRAIN that has its payload": true,
			"DRAIN without payload": true, "unknown type with a payload": true,
		}[name]
		t.Run(name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *stage) {
				fresh, tn := s.client(), s.opened(2)
				fresh.SendRaw(message)
				tn.client.SendRaw(message)
				if harmless {
					tn.works()
					s.open(fresh, s.agent, 3).works()
					return
				}
				if err := fresh.ExpectEnd(); errors.Is(err, io.EOF) {
					t.Errorf("the stream ended in order")
				}
				if k := tn.client.ExpectOn(wire.CloseResponse, 2); k.Error == "" {
					t.Errorf("closed with %s", line(k))
				}
				_ = tn.client.ExpectEnd()
				expect(t, s.agent.Peer, closeReq(2))
				s.agent.Send(closeRsp(2, ""))
				s.wantTunnels(1)
			})
		})
	}
}

// Bytes that are no packet end the stream they are on, and nothing else.
func TestBytesThatAreNoPacket(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.client.SendRaw([]byte{0xff, 0xff, 0xff, 0xff})
		tn.client.Skip(wire.CloseResponse)
		if err := tn.client.ExpectEnd(); errors.Is(err, io.EOF) {
			t.Error("the stream ended in order")
		}
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))
		s.wantTunnels(1)
	})
}

// Fields that nobody knows are skipped, and DATA's own error field is nobody's
// business: the reference passes it on and no one reads it.
func TestUnknownFields(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		errorField := []byte{0x12, 0x01, 'e'}                     // 2: "e"
		future := []byte{0xf8, 0x07, 0x05, 0xfa, 0x07, 0x01, 'x'} // 127: 5, 127: "x"
		tn.client.SendRaw(rawData(2, []byte("up"), append(errorField, future...)...))
		tn.agent.ExpectData(2, []byte("up"))
		s.agent.SendRaw(rawData(2, []byte("down"), append(errorField, future...)...))
		tn.client.ExpectData(2, []byte("down"))
		tn.client.SendRaw(append(rawData(2, []byte("more")), future...))
		tn.agent.ExpectData(2, []byte("more"))
	})
}
