package oldpeers

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Ends of connections between an old server and an endpoint. COMPAT 1.7, 6.4, 9.2.

// CLOSE_REQ right behind much data: the endpoint gets all of it. The reference's
// agent throws away what it had queued.
func TestAgentDeliversBeforeItCloses(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		chunk := strings.Repeat("x", 1000)
		for range 100 {
			p.server.Send(data(1, chunk))
		}
		p.server.Send(closeReq(1))
		later(2 * time.Second) // an endpoint that is slow to read
		reads(t, conn, strings.Repeat(chunk, 100))
		readsEOF(t, conn)
		expect(t, p.server.Peer, closeRsp(1, ""))
		conn.Close()
		later(2 * time.Second)
		p.wantConnections(0)
	})
}

// What was read from the endpoint before CLOSE_REQ comes before the answer.
func TestAgentFlushesBeforeItAnswers(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		writes(t, conn, "read already")
		synctest.Wait()
		p.server.Send(closeReq(1))
		expect(t, p.server.Peer, data(1, "read already"), closeRsp(1, ""))
		readsEOF(t, conn)
		// The number is forgotten: whoever comes late is told so, each time.
		synctest.Wait()
		for range 2 {
			p.server.Send(data(1, "late"))
			expect(t, p.server.Peer, closeRsp(1, "unrecognized connectID"))
			p.server.Send(closeReq(1))
			expect(t, p.server.Peer, closeRsp(1, "Unknown connectID"))
		}
	})
}

// The endpoint takes nothing, and CLOSE_REQ comes: the answer must not wait for
// ever; an old client waits 10 s for it.
func TestAgentClosesAStuckEndpoint(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		p.opened(p.listen(endpointAddress), 4, 1) // reads nothing
		p.server.SendData(1, make([]byte, 100<<10))
		later(6 * time.Second)
		p.server.Send(closeReq(1))
		start := time.Now()
		k := p.server.ExpectOn(wire.CloseResponse, 1)
		if d := time.Since(start); d > time.Second {
			t.Errorf("%s after %v", line(k), d)
		}
		later(2 * time.Second)
		p.wantConnections(0)
	})
}

// The endpoint's FIN is a full close: old servers know no half-close. The rest of
// its data comes first.
func TestAgentTakesFINForAClose(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.server.Send(data(1, "request"))
		reads(t, conn, "request")
		writes(t, conn, "response")
		conn.CloseWrite()
		p.server.ExpectData(1, []byte("response"))
		expect(t, p.server.Peer, closeRsp(1, ""))
		readsEOF(t, conn)
		synctest.Wait()
		p.server.Send(data(1, "late"))
		expect(t, p.server.Peer, closeRsp(1, "unrecognized connectID"))
		p.server.Send(closeReq(1))
		expect(t, p.server.Peer, closeRsp(1, "Unknown connectID"))
		p.wantConnections(0)
	})
}

// A reset by the endpoint: an old server hears of it as of any end.
func TestAgentReportsAReset(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.echoes(conn, 1)
		conn.Reset()
		if k := p.server.ExpectOn(wire.CloseResponse, 1); k.Reason != 0 {
			t.Errorf("closed with %s", line(k))
		}
		p.wantConnections(0)
	})
}

// Packets for what is not there. COMPAT 1.7 "Other wrong orders".
func TestAgentDoesNotKnowTheConnection(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.server.Send(data(9, "x"))
		expect(t, p.server.Peer, closeRsp(9, "unrecognized connectID"))
		p.server.Send(closeReq(9))
		expect(t, p.server.Peer, closeRsp(9, "Unknown connectID"))
		p.server.Send(data(0, "x"), closeReq(0)) // dropped
		synctest.Wait()
		p.server.ExpectNothing()
		p.echoes(conn, 1)
	})
}

// serverLosses are the ways in which an agent loses a server's stream.
func serverLosses() map[string]func(p *place) {
	return map[string]func(*place){
		"error": func(p *place) { p.server.End(status.Error(codes.Internal, "something")) },
		"EOF":   func(p *place) { p.server.End(nil) },
		"cut":   func(p *place) { p.net.Cut("agent", "server:8091") },
		"nonsense": func(p *place) {
			p.server.SendRaw([]byte{0xff, 0xff, 0xff})
		},
	}
}

// All its connections are reset, what had arrived for them before is delivered, and
// the agent connects anew at its next round.
func TestServerLost(t *testing.T) {
	for name, lose := range serverLosses() {
		t.Run(name, func(t *testing.T) {
			withAgent(t, func(t *testing.T, p *place) {
				node := p.listen(endpointAddress)
				conn := p.opened(node, 4, 1)
				p.server.Send(data(1, "before"))
				synctest.Wait()
				start := time.Now()
				lose(p)
				reads(t, conn, "before")
				_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the endpoint read %v, want a reset", err)
				}
				if d := time.Since(start); d > time.Second {
					t.Errorf("it took %v", d)
				}
				p.accept()
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("the agent came back after %v", d)
				}
				p.echoes(p.opened(node, 4, 1), 1)
			})
		})
	}
}

// A GOAWAY means that the server takes no new streams. The reference's agent then
// cuts all its connections within a second (9.2); ours keeps the stream until it
// ends, asks to be spared new dials, and looks for another server.
func TestServerGoesAway(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		p.servers.GoAway() // closes the listener, too
		expect(t, p.server.Peer, drain())
		for range 10 {
			later(time.Second)
			p.echoes(conn, 1)
		}
		p.server.Send(closeReq(1))
		expect(t, p.server.Peer, closeRsp(1, ""))
		readsEOF(t, conn)
	})
}

// The agent's own end. DRAIN once, at once; new dials are served for the lame-duck
// time, then refused; the process ends with the last connection. COMPAT 6.6, 11.
func TestAgentDrains(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		conn := p.opened(node, 4, 1)
		p.stop()
		expect(t, p.server.Peer, drain())
		p.echoes(conn, 1)
		second := p.opened(node, 5, 2) // an old server may have nobody else
		p.echoes(second, 2)
		later(6 * time.Second)
		p.server.Send(dialReq(6))
		if k := p.server.Expect(wire.DialResponse); k.DialID != 6 || k.Error == "" || k.ConnectionID != 0 {
			t.Errorf("answered %s", line(k))
		}
		later(time.Minute) // no bound of its own
		p.echoes(conn, 1)
		p.echoes(second, 2)
		for id, c := range map[wire.ConnectionID]*tunneltest.Conn{1: conn, 2: second} {
			p.server.Send(closeReq(id))
			expect(t, p.server.Peer, closeRsp(id, ""))
			readsEOF(t, c)
			c.Close()
		}
		<-p.ended
		if err := p.server.ExpectEnd(); !errors.Is(err, io.EOF) && status.Code(err) != codes.Canceled {
			t.Errorf("the stream ended with %v", err)
		}
	})
}
