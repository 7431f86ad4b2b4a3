package oldpeers

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Dials that an old server asks our agent for. COMPAT 1.5, 1.7, 6.4.

// Numbers count from 1 on each stream, one for every DIAL_REQ that is received,
// whatever comes of it; the agent does not mind equal randoms.
func TestAgentCountsConnections(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		first := p.opened(node, 7, 1)
		p.server.Send(wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "nowhere:1", DialID: 8})
		if k := p.server.Expect(wire.DialResponse); k.DialID != 8 || k.ConnectionID != 0 || k.Error == "" {
			t.Errorf("answered %s", line(k))
		}
		second := p.opened(node, 7, 3) // 2 was burnt
		p.echoes(first, 1)
		p.echoes(second, 3)
		// Two at once with one random give two connections.
		p.server.Send(dialReq(9), dialReq(9))
		got := map[wire.ConnectionID]bool{}
		for range 2 {
			k := p.server.Expect(wire.DialResponse)
			got[k.ConnectionID] = k.DialID == 9 && k.Error == ""
		}
		if len(got) != 2 || !got[4] || !got[5] {
			t.Errorf("answered with %v", got)
		}
		p.take(node)
		p.take(node)
		p.wantConnections(4)

		// On the next stream they count from 1 again.
		p.server.Close()
		later(time.Second)
		p.accept()
		p.wantConnections(0)
		p.echoes(p.opened(node, 7, 1), 1)
	})
}

// What is wrong is said in the words that servers know: their HTTP status depends
// on them.
func TestAgentsDialErrors(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		p.listen("refusing:80").SetMode(tunneltest.Refusing)
		for address, words := range map[string]string{
			"refusing:80": "connection refused",
			"nowhere:80":  "no such host",
		} {
			p.server.Send(wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: address, DialID: 5})
			k := p.server.Expect(wire.DialResponse)
			if k.DialID != 5 || k.ConnectionID != 0 || !strings.Contains(k.Error, words) || k.Reason != 0 {
				t.Errorf("%s: %s", address, line(k))
			}
		}
		// An endpoint that does not answer: 5 s, DNS included.
		p.listen("black:80")
		p.net.ShapeBoth("agent", "black:80", tunneltest.Shape{Stall: true})
		p.server.Send(wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "black:80", DialID: 6})
		start := time.Now()
		k := p.server.Expect(wire.DialResponse)
		if d := time.Since(start); k.DialID != 6 || k.Error == "" || d != 5*time.Second {
			t.Errorf("%s after %v", line(k), d)
		}
		if n := p.number("konnectivity_network_proxy_agent_endpoint_dial_failure_total", "reason", "timeout"); n != 1 {
			t.Errorf("%d timeouts were counted", n)
		}
		p.wantConnections(0)
	})
}

// Old servers pass on whatever network the client names; only TCP is dialled (9.2).
func TestAgentRefusesOtherNetworks(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		for _, network := range []string{"udp", "unix", "", "TCP", "ip"} {
			req := dialReq(5)
			req.Protocol = network
			p.server.Send(req)
			if k := p.server.Expect(wire.DialResponse); k.DialID != 5 || k.ConnectionID != 0 || k.Error == "" {
				t.Errorf("%q: %s", network, line(k))
			}
		}
		for i, network := range []string{"tcp4", "tcp6"} {
			req := dialReq(6)
			req.Protocol = network
			p.server.Send(req)
			expect(t, p.server.Peer, dialRsp(6, wire.ConnectionID(6+i)))
			p.take(node)
		}
	})
}

// Dials go on beside each other, and beside what flows.
func TestAgentDialsInParallel(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		p.listen("black:80")
		p.net.ShapeBoth("agent", "black:80", tunneltest.Shape{Stall: true})
		req := dialReq(5)
		req.Address = "black:80"
		p.server.Send(req)
		conn := p.opened(node, 6, 2)
		p.echoes(conn, 2)
		if k := p.server.Expect(wire.DialResponse); k.DialID != 5 || k.Error == "" {
			t.Errorf("answered %s", line(k))
		}
	})
}

// An old server sends DIAL_CLS when a client was lost, and does not expect that
// anything comes of it: ours cancels the dial and does not answer (9.2).
func TestAgentObeysDialClose(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		conn := p.opened(node, 4, 1)
		p.listen("black:80")
		p.net.ShapeBoth("agent", "black:80", tunneltest.Shape{Stall: true})
		req := dialReq(5)
		req.Address = "black:80"
		p.server.Send(req)
		p.server.Send(dialCls(77), dialCls(4)) // nobody's, and one that was answered
		synctest.Wait()
		p.echoes(conn, 1)
		p.server.Send(dialCls(5))
		later(10 * time.Second)
		p.server.ExpectNothing()
		p.wantConnections(1)
		p.server.Send(closeReq(1))
		expect(t, p.server.Peer, closeRsp(1, ""))
	})
}

// The answer is on its way when DIAL_CLS comes: the server sends CLOSE_REQ then.
func TestAgentAnswersBeforeDialClose(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.server.Send(dialCls(4), closeReq(1))
		expect(t, p.server.Peer, closeRsp(1, ""))
		readsEOF(t, conn)
	})
}
