package oldpeers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Who may send what to our agent. COMPAT 1.2, 1.6. The server's side is in
// ignored_test.go.

func TestPacketsThatServersDoNotSend(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		for _, k := range append([]wire.Packet{
			dialRsp(4, 1), dialErr(4, "no"), closeRsp(1, ""), closeRsp(1, "no"), closeRsp(9, ""), drain(),
		}, unknown(1)...) {
			p.server.Send(k)
		}
		p.server.SendRaw(type99())
		synctest.Wait()
		p.server.ExpectNothing()
		p.echoes(conn, 1)
		if n := p.number("konnectivity_network_proxy_agent_stream_packets_total", "segment", "to_agent", "packet_type", "99"); n != 1 {
			t.Errorf("%d packets of type 99 were counted", n)
		}
		later(10 * time.Second) // DRAIN from an old server makes no one move
		if n := p.servers.Waiting(); n != 0 {
			t.Errorf("the agent has opened %d more streams", n)
		}
	})
}

// The reference's agent crashes on them.
func TestMismatchedPacketsFromServers(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		for name, message := range mismatched() {
			p.server.SendRaw(message)
			synctest.Wait()
			p.server.ExpectNothing()
			p.echoes(conn, 1)
			if t.Failed() {
				t.Fatalf("after %s", name)
			}
		}
	})
}

// Unknown fields, DATA's error field and empty DATA say nothing.
func TestUnknownFieldsFromServers(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.server.SendRaw(rawData(1, []byte("text"), 0x12, 0x01, 'e', 0xf8, 0x07, 0x05))
		reads(t, conn, "text")
		p.server.Send(data(1, ""), data(1, "more"))
		reads(t, conn, "more")
		p.echoes(conn, 1)
	})
}
