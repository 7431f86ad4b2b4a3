package oldpeers

import (
	"testing/synctest"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// New peers beside the old ones.

// newAgent brings in a scripted agent with all extensions, which is a backend.
func newAgent(s *stage) *tunneltest.AgentPeer {
	s.t.Helper()
	a := s.connectWith(link.AgentHello{AgentID: "new", Instance: "i", Slot: "0", Extensions: wire.AllExtensions})
	a.Send(wire.Packet{Type: wire.Ready})
	synctest.Wait()
	return a
}

// offered is what a dial offers to a new agent.
type offered struct {
	halfCloses bool
	window     int64
}

// newTunnel makes a tunnel between a client and a new agent. The agent grants much.
func newTunnel(s *stage, c *tunneltest.ClientPeer, a *tunneltest.AgentPeer, id wire.ConnectionID) offered {
	s.t.Helper()
	random := s.random()
	c.Send(dialReq(random))
	k := a.ExpectDial(endpointAddress)
	if k.Window <= 0 {
		s.t.Errorf("a new agent gets %s", line(k))
	}
	a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: id, Window: 1 << 20})
	expect(s.t, c.Peer, dialRsp(random, id))
	return offered{k.CanHalfClose, k.Window}
}
