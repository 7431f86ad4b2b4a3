package oldpeers

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Back-pressure and order between old clients and old agents. COMPAT 1.8, 9.2,
// DESIGN 4.2. The agent's side is in agent_pressure_test.go.

// pattern is n bytes that tell where they belong.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

// chunks sends b as the reference's agent does, in pieces of 4,096 bytes.
func (s *stage) chunks(id wire.ConnectionID, b []byte) {
	s.t.Helper()
	for piece := range slicesOf(b, 4096) {
		s.agent.Send(wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes(piece)})
	}
}

// slicesOf cuts b.
func slicesOf(b []byte, n int) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			k := min(n, len(b))
			if !yield(b[:k]) {
				return
			}
			b = b[k:]
		}
	}
}

// Several tunnels of one link, both ways at once, interleaved: each has its bytes
// whole and in order.
func TestOrderIsKept(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		const size = 300 << 10
		tunnels := []*tunnel{s.opened(2), s.opened(3), s.opened(4)}
		for _, tn := range tunnels {
			tn.works()
		}
		sent := make(chan struct{}, 1+len(tunnels))
		go func() { // the agent has one stream for all
			rest := map[wire.ConnectionID][]byte{}
			for _, tn := range tunnels {
				rest[tn.id] = pattern(size, uint64(tn.id))
			}
			for len(rest) > 0 {
				for _, tn := range tunnels {
					if b := rest[tn.id]; len(b) > 0 {
						n := min(len(b), 4096)
						s.agent.Send(wire.Packet{Type: wire.Data, ConnectionID: tn.id, Payload: wire.PayloadBytes(b[:n])})
						rest[tn.id] = b[n:]
					} else {
						delete(rest, tn.id)
					}
				}
			}
			sent <- struct{}{}
		}()
		for _, tn := range tunnels {
			go func() {
				for piece := range slicesOf(pattern(size, uint64(tn.id+100)), 10_000) {
					tn.client.Send(wire.Packet{Type: wire.Data, ConnectionID: tn.id, Payload: wire.PayloadBytes(piece)})
				}
				sent <- struct{}{}
			}()
		}
		for _, tn := range tunnels {
			tn.client.ExpectData(tn.id, pattern(size, uint64(tn.id)))
		}
		got := map[wire.ConnectionID][]byte{}
		for total := 0; total < len(tunnels)*size; {
			k := s.agent.Expect(wire.Data)
			got[k.ConnectionID] = append(got[k.ConnectionID], k.Payload.Bytes()...)
			total += k.Payload.Len()
		}
		for _, tn := range tunnels {
			if !bytes.Equal(got[tn.id], pattern(size, uint64(tn.id+100))) {
				t.Errorf("what reached the agent on %d is not what was sent", tn.id)
			}
			<-sent
		}
		<-sent
	})
}

// A client that stands still for less than the limit loses nothing; the others on
// its agent's stream wait with it, since an old agent knows no credit.
func TestClientThatPauses(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		tn.client.SetReading(false)
		want := pattern(2<<20, 1)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			s.chunks(2, want)
			s.agent.Send(data(1, "neighbour"))
		}()
		s.later(9 * time.Second)
		if n := s.number("konnectivity_network_proxy_server_full_receive_channels", "service_method", "Connect"); n != 1 {
			t.Errorf("%d readers are blocked, want 1", n)
		}
		s.neighbour.client.ExpectNothing()
		tn.client.SetReading(true)
		tn.client.ExpectData(2, want)
		expect(t, s.neighbour.client.Peer, data(1, "neighbour"))
		<-sent
		tn.works()
		s.later(time.Second)
		if n := s.number("konnectivity_network_proxy_server_full_receive_channels"); n != 0 {
			t.Errorf("%d readers are blocked", n)
		}
	})
}

// One that stands still for longer is given up, and the others go on. The reference
// waits for ever.
func TestClientThatIsStuck(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		tn.client.SetReading(false)
		start := time.Now()
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			s.chunks(2, pattern(2<<20, 1))
			s.agent.Send(data(1, "neighbour"))
		}()
		expect(t, s.neighbour.client.Peer, data(1, "neighbour"))
		if d := time.Since(start); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("the neighbour's data came after %v, want 10 s", d)
		}
		<-sent
		expect(t, s.agent.Peer, closeReq(2)) // once, whatever still came
		s.agent.Send(closeRsp(2, ""))
		s.later(15 * time.Second)
		s.agent.ExpectNothing()
		if n := s.number("culvert_server_tunnels_closed_total", "reason", "stuck"); n != 1 {
			t.Errorf("%d tunnels were closed for being stuck", n)
		}
		s.wantTunnels(1)
		// What the client had been sent it can read; then its stream is over.
		tn.client.SetReading(true)
		synctest.Wait()
		tn.client.Skip()
		_ = tn.client.ExpectEnd()
	})
}

// An agent that stands still holds up its clients, by HTTP/2's flow control, and
// no one else: not the clients of other agents. When it goes on nothing is lost.
func TestAgentThatPauses(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		b := s.connect("b")
		tn := s.open(s.client(), b, 1)
		tn.works()
		b.SetReading(false)
		want := pattern(4<<20, 3)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for piece := range slicesOf(want, 32<<10) {
				tn.client.Send(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.PayloadBytes(piece)})
			}
			tn.client.Send(closeReq(1))
		}()
		for range 10 {
			s.later(time.Second)
			s.neighbour.works()
		}
		select {
		case <-sent:
			t.Error("4 MiB went nowhere: there is no back-pressure")
		default:
		}
		b.SetReading(true)
		b.ExpectData(1, want)
		expect(t, b.Peer, closeReq(1)) // behind the last byte
		<-sent
		b.Send(closeRsp(1, ""))
		expect(t, tn.client.Peer, closeRsp(1, ""))
		wantEOF(t, tn.client.Peer)
	})
}

// The public library has room for 10 chunks and closes a tunnel whose reader stands
// still for 10 s: to us it is a client that reads on and says CLOSE_REQ.
func TestClientLibraryGivesItsReaderUp(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		want := pattern(256<<10, 5)
		s.chunks(2, want[:128<<10])
		tn.client.ExpectData(2, want[:128<<10])
		tn.client.Send(closeReq(2))
		expect(t, s.agent.Peer, closeReq(2))
		s.chunks(2, want[128<<10:]) // still under way
		s.agent.Send(closeRsp(2, ""))
		tn.client.ExpectData(2, want[128<<10:])
		expect(t, tn.client.Peer, closeRsp(2, ""))
		wantEOF(t, tn.client.Peer)
	})
}

// The public library loses DATA that comes before its caller has registered the
// connection, and says CLOSE_REQ for "unknown ID"; the tunnel goes on, and here the
// first chunk comes again (DESIGN 4.3).
func TestClientLibraryLosesTheFirstBytes(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		banner := "SSH-2.0-banner\r\n"
		s.agent.Send(data(2, banner))
		first := tn.client.ExpectOn(wire.Data, 2).Payload.Bytes()
		tn.client.Send(closeReq(2)) // lost
		got := tn.client.ExpectOn(wire.Data, 2).Payload.Bytes()
		if !bytes.Equal(got, first) {
			t.Fatalf("%q came again, after %q", got, first)
		}
		if rest := banner[len(first):]; rest != "" {
			tn.client.ExpectData(2, []byte(rest))
		}
		synctest.Wait()
		s.agent.ExpectNothing() // the agent has not heard of it
		tn.works()
		tn.closeByClient()
	})
}
