package oldpeers

import (
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Packets in the wrong order, or about what is not there. COMPAT 1.7 ("Other wrong
// orders", "Several connections on one Proxy stream"), 9.2.

func TestDataBeforeAnyDial(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		c.Send(data(5, "x"))
		expect(t, c.Peer, closeRsp(5, "backend not initialized"))
		wantEOF(t, c.Peer) // not silent any more (9.2)

		// Not even with the number of somebody else's connection.
		c = s.client()
		c.Send(data(s.neighbour.id, "foreign"))
		expect(t, c.Peer, closeRsp(s.neighbour.id, "backend not initialized"))
		wantEOF(t, c.Peer)
	})
}

func TestCloseBeforeAnyDial(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		c.Send(closeReq(5), closeReq(s.neighbour.id))
		expect(t, c.Peer, closeRsp(5, "backend uninitialized"), closeRsp(s.neighbour.id, "backend uninitialized"))
		s.open(c, s.agent, 2).works() // the stream is usable as before
	})
}

// A client that does not wait for the answer to its dial. The reference sends such
// packets to the agent.
func TestPacketsBeforeTheAnswer(t *testing.T) {
	for _, early := range []wire.Packet{data(1, "x"), closeReq(1)} {
		withServer(t, func(t *testing.T, s *stage) {
			c := s.client()
			random := s.dial(c, s.agent)
			c.Send(early)
			if k := c.ExpectOn(wire.CloseResponse, 1); k.Error == "" {
				t.Errorf("%s is answered with %s", line(early), line(k))
			}
			if k := c.Skip(wire.DialResponse); len(k) == 1 && k[0].Error == "" {
				t.Errorf("the dial is answered with %s", line(k[0]))
			}
			for _, k := range c.Skip() {
				t.Errorf("and with %s", line(k))
			}
			expect(t, s.agent.Peer, dialCls(random))
			s.agent.Send(dialRsp(random, 2))
			expect(t, s.agent.Peer, closeReq(2))
			s.agent.Send(closeRsp(2, ""))
			s.wantTunnels(1)
		})
	}
}

// Connection 0 is nobody's, on every stream.
func TestConnectionZero(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		zero := []wire.Packet{data(0, "x"), closeReq(0), closeRsp(0, ""), closeRsp(0, "text")}
		fresh, dialing, tn := s.client(), s.client(), s.opened(2)
		random := s.dial(dialing, s.agent)
		for _, p := range zero {
			fresh.Send(p)
			dialing.Send(p)
			tn.client.Send(p)
			s.agent.Send(p)
		}
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(dialRsp(random, 3))
		expect(t, dialing.Peer, dialRsp(random, 3))
		(&tunnel{t: t, client: dialing, agent: s.agent, id: 3}).works()
		tn.works()
		s.open(fresh, s.agent, 4).works()
	})
}

func TestDataWithoutBytes(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.client.Send(data(2, ""), data(2, "a"), data(2, ""), data(2, "b"))
		tn.agent.ExpectData(2, []byte("ab"))
		// The public client takes one for the end of the data, so none passes.
		s.agent.Send(data(2, ""), data(2, "c"), data(2, ""), data(2, "d"))
		tn.client.ExpectData(2, []byte("cd"))
		for _, p := range []*tunneltest.Peer{tn.client.Peer, s.agent.Peer} {
			synctest.Wait()
			p.ExpectNothing()
		}
	})
}

func TestDataOfAnUnknownConnection(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(data(77, "x"))
		expect(t, s.agent.Peer, closeReq(77))
		s.agent.Send(data(77, "y"), data(77, "z")) // it has not heard yet: once is enough
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(closeRsp(77, ""))
		s.agent.Send(data(77, "again"))
		expect(t, s.agent.Peer, closeReq(77))
		s.agent.Send(closeRsp(77, "Unknown connectID"))
		synctest.Wait()
		s.agent.ExpectNothing()
		// The number can be used for a connection now.
		s.opened(77).works()
	})
}

func TestCloseResponseOfAnUnknownConnection(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(closeRsp(77, ""), closeRsp(77, "unrecognized connectID"), closeRsp(-1, ""))
		synctest.Wait()
		s.agent.ExpectNothing()
		s.opened(77).works()
	})
}

// Answers that fit no dial, or cannot be meant.
func TestDialResponsesThatFitNothing(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		s.agent.Send(dialErr(5, "connection refused")) // nobody had asked
		synctest.Wait()
		s.agent.ExpectNothing()
		s.agent.Send(dialRsp(5, 9)) // nor for this, so it must go
		expect(t, s.agent.Peer, closeReq(9))
		s.agent.Send(closeRsp(9, ""))
		s.agent.Send(dialRsp(s.neighbour.random, 9)) // a second answer
		expect(t, s.agent.Peer, closeReq(9))
		s.agent.Send(closeRsp(9, ""))
		s.agent.Send(dialRsp(5, 1)) // the neighbour's number: closing it would hit it
		synctest.Wait()
		s.agent.ExpectNothing()
		if n := s.dialFailures("unrecognized_response"); n != 4 {
			t.Errorf("%d answers were counted", n)
		}
		for _, id := range []wire.ConnectionID{0, -3, 1} { // no number, none that can be, and one in use
			c := s.client()
			random := s.dial(c, s.agent)
			s.agent.Send(dialRsp(random, id))
			if k := c.Expect(wire.DialResponse); k.DialID != random || k.Error == "" || k.ConnectionID != 0 {
				t.Errorf("connection ID %d: %s", id, line(k))
			}
			wantEOF(t, c.Peer)
		}
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// A stream has one connection. The reference serves several dials, and then mixes
// their targets up.
func TestSecondDialOnAStream(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		// On a tunnel.
		tn := s.opened(2)
		tn.works()
		tn.client.Send(dialReq(6))
		if k := tn.client.Expect(wire.DialResponse); k.DialID != 6 || k.Error == "" {
			t.Errorf("answered %s", line(k))
		}
		if k := tn.client.ExpectOn(wire.CloseResponse, 2); k.Error == "" {
			t.Errorf("closed with %s", line(k))
		}
		wantEOF(t, tn.client.Peer)
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))

		// While the first one is pending; both are answered.
		c := s.client()
		random := s.dial(c, s.agent)
		c.Send(dialReq(7))
		got := map[wire.DialID]string{}
		for range 2 {
			k := c.Expect(wire.DialResponse)
			got[k.DialID] = k.Error
		}
		if got[random] == "" || got[7] == "" {
			t.Errorf("answered %v", got)
		}
		wantEOF(t, c.Peer)
		expect(t, s.agent.Peer, dialCls(random))
		s.agent.Send(dialErr(random, "canceled"))
		s.wantPending(0)
	})
}

// After a dial that failed the stream has ended, where the reference's would take
// another DIAL_REQ; the public library closes it in either case.
func TestSecondDialAfterAFailure(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		c := s.client()
		random := s.dial(c, s.agent)
		s.agent.Send(dialErr(random, "connection refused"))
		expect(t, c.Peer, dialErr(random, "connection refused"))
		_ = c.Stream().SendMsg(&wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: endpointAddress, DialID: 8})
		wantEOF(t, c.Peer)
		synctest.Wait()
		s.agent.ExpectNothing()
	})
}

// Another connection's number ends the stream, with answers for both, the new one
// first; the reference sends CLOSE_REQ for both, which hits the other one.
func TestMismatchedConnectionIDs(t *testing.T) {
	for _, wrong := range []wire.Packet{data(1, "x"), closeReq(1), data(99, "x"), closeReq(99), data(-1, "x")} {
		withServer(t, func(t *testing.T, s *stage) {
			tn := s.opened(2)
			tn.works()
			tn.client.Send(wrong)
			expect(t, tn.client.Peer, closeRsp(wrong.ConnectionID, "mismatched connection IDs"), closeRsp(2, "mismatched connection IDs"))
			wantEOF(t, tn.client.Peer)
			expect(t, s.agent.Peer, closeReq(2))
			s.agent.Send(closeRsp(2, ""))
			synctest.Wait()
			s.agent.ExpectNothing()
			s.wantTunnels(1)
		})
	}
}

// One gRPC connection carries any number of streams, one after another and at once.
func TestManyStreamsOnOneConnection(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		cc, err := grpc.NewClient("passthrough:///"+front, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(s.net.Dialer("kube-apiserver")), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{})))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		var streams []grpc.ClientStream
		for id := wire.ConnectionID(2); id < 12; id++ {
			stream, err := cc.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, tunneltest.ProxyMethod)
			if err != nil {
				t.Fatal(err)
			}
			random := s.random()
			exchange(t, stream, dialReq(random))
			expect(t, s.agent.Peer, dialReq(random))
			s.agent.Send(dialRsp(random, id))
			receive(t, stream, dialRsp(random, id))
			streams = append(streams, stream)
		}
		for i, stream := range streams {
			id := wire.ConnectionID(i + 2)
			exchange(t, stream, data(id, "up"))
			expect(t, s.agent.Peer, data(id, "up"))
			exchange(t, stream, closeReq(id))
			expect(t, s.agent.Peer, closeReq(id))
			s.agent.Send(closeRsp(id, ""))
			receive(t, stream, closeRsp(id, ""))
		}
		s.wantTunnels(1)
	})
}

func exchange(t *testing.T, stream grpc.ClientStream, p wire.Packet) {
	t.Helper()
	if err := stream.SendMsg(&p); err != nil {
		t.Fatalf("sending %s: %v", line(p), err)
	}
}

func receive(t *testing.T, stream grpc.ClientStream, want wire.Packet) {
	t.Helper()
	var got wire.Packet
	if err := stream.RecvMsg(&got); err != nil || line(got) != line(want) {
		t.Fatalf("got %s, %v, want %s", line(got), err, line(want))
	}
}

// Messages beyond the limit end one stream of a client; an agent's are taken, so
// that one tunnel cannot cost all the others (11).
func TestOversizeMessages(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		tn := s.opened(2)
		tn.works()
		big := make([]byte, 5<<20)
		tn.client.SendRaw(rawData(2, big))
		wantStatus(t, tn.client.Peer, codes.ResourceExhausted)
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))

		tn = s.opened(3)
		tn.works()
		for i := range big {
			big[i] = byte(i % 251)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			s.agent.SendRaw(rawData(3, big))
		}()
		tn.client.ExpectData(3, big)
		<-sent
		tn.works()
	})
}
