package oldpeers

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Back-pressure and order between an old server and endpoints. COMPAT 1.8, 9.2. The
// server's side is in pressure_test.go.

// An endpoint that pauses for less than the limit loses nothing.
func TestEndpointThatPauses(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		slow, neighbour := p.opened(node, 4, 1), p.opened(node, 5, 2)
		want := pattern(4<<20, 1)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			p.server.SendData(1, want)
			p.server.Send(data(2, "neighbour"))
		}()
		later(9 * time.Second)
		if n := p.number("culvert_agent_blocked_readers"); n != 1 {
			t.Errorf("%d readers are blocked, want 1", n)
		}
		got := make([]byte, len(want))
		for off := 0; off < len(got); {
			n, err := slow.Read(got[off:])
			if err != nil {
				t.Fatal(err)
			}
			off += n
		}
		if !bytes.Equal(got, want) {
			t.Error("the endpoint got other bytes than were sent")
		}
		reads(t, neighbour, "neighbour")
		<-sent
		p.echoes(slow, 1)
	})
}

// One that takes nothing for longer is given up with a text, and the others go on.
// The reference's agent waits for ever.
func TestEndpointThatIsStuck(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		stuck, neighbour := p.opened(node, 4, 1), p.opened(node, 5, 2)
		start := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			p.server.SendData(1, pattern(4<<20, 1))
			p.server.Send(data(2, "neighbour"))
		}()
		reads(t, neighbour, "neighbour")
		if d := time.Since(start); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("the neighbour's data came after %v, want 10 s", d)
		}
		<-sent
		// The close, and an answer to what still came for it.
		k := p.server.ExpectOn(wire.CloseResponse, 1)
		if k.Error == "" || k.Reason != 0 {
			t.Errorf("closed with %s", line(k))
		}
		synctest.Wait()
		for _, k := range p.server.Skip() {
			if line(k) != line(closeRsp(1, "unrecognized connectID")) {
				t.Errorf("and %s", line(k))
			}
		}
		stuck.Close()
		p.echoes(neighbour, 2)
		p.wantConnections(1)
	})
}

// A server that stands still holds up the endpoints, by HTTP/2's flow control; when
// it goes on nothing is lost.
func TestServerThatPauses(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		node := p.listen(endpointAddress)
		conn := p.opened(node, 4, 1)
		p.echoes(conn, 1)
		p.server.SetReading(false)
		want := pattern(4<<20, 2)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			_, _ = conn.Write(want)
			_ = conn.CloseWrite()
		}()
		later(20 * time.Second)
		select {
		case <-sent:
			t.Error("4 MiB went nowhere: there is no back-pressure")
		default:
		}
		p.server.SetReading(true)
		p.server.ExpectData(1, want)
		expect(t, p.server.Peer, closeRsp(1, ""))
		<-sent
	})
}

// No DATA is longer than an old server takes (4 MiB in one message), and none is
// empty, which its client would take for the end.
func TestSizesOfOurAgentsData(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 4, 1)
		want := pattern(1<<20, 3)
		go conn.Write(want)
		for off := 0; off < len(want); {
			k := p.server.ExpectOn(wire.Data, 1)
			if n := k.Payload.Len(); n == 0 || n > 32<<10 {
				t.Errorf("DATA of %d bytes", n)
			}
			off += k.Payload.Len()
		}
	})
}
