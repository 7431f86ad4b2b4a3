package tunneltest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// bubbleServer runs f in fake time with a scripted server on "server".
func bubbleServer(t *testing.T, f func(t *testing.T, n *Network, s *Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		f(t, n, Serve(t, n.Listen("server")))
	})
}

func newAgent() link.AgentHello {
	return link.AgentHello{AgentID: "a", Extensions: wire.AllExtensions, Instance: "i", Slot: "0"}
}

func TestAgentAndServerTalk(t *testing.T) {
	bubbleServer(t, func(t *testing.T, n *Network, s *Server) {
		accepted := make(chan *ServerPeer, 1)
		go func() { // in tests of others one of the two is real
			accepted <- s.AcceptAgent(link.ServerHello{ServerID: "s", ServerCount: 3, Extensions: wire.ExtPing | wire.ExtReason})
		}()
		agent := Connect(t, n.Dialer("agent"), "server", newAgent())
		server := <-accepted
		if want := (link.ServerHello{ServerID: "s", ServerCount: 3, Extensions: wire.ExtPing | wire.ExtReason}); agent.Server != want {
			t.Errorf("the server said %+v", agent.Server)
		}
		if server.Agent.AgentID != "a" || server.Agent.Slot != "0" {
			t.Errorf("the agent said %+v", server.Agent)
		}

		server.Send(wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "h:1", DialID: 7})
		dial := agent.ExpectDial("h:1")
		agent.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: 1})
		if k := server.ExpectOn(wire.DialResponse, 1); k.DialID != 7 {
			t.Errorf("got %s", describe(k))
		}
		big := make([]byte, 1<<20)
		_, _ = rand.Read(big)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			agent.SendData(1, big)
		}()
		server.ExpectData(1, big)
		<-sent

		server.Send(wire.Packet{Type: wire.Ping, Nonce: 5}, wire.Packet{Type: wire.Credit, ConnectionID: 1, Window: 9},
			wire.Packet{Type: wire.Credit, ConnectionID: 1, Window: 1})
		agent.WaitCredit(1, 10)
		synctest.Wait()
		agent.ExpectNothing()
		server.ExpectNothing() // the pong too is taken in silently
		if agent.Pings() != 1 || agent.Credit(1) != 10 {
			t.Errorf("%d pings, credit %d", agent.Pings(), agent.Credit(1))
		}

		agent.SendRaw([]byte{0x08, 0x63})             // type 99
		agent.SendRaw([]byte{0x08, 0x04})             // DATA without its payload
		agent.SendRaw([]byte{0x2a, 0x02, 0x08, 0x01}) // close request in a DIAL_REQ
		synctest.Wait()
		if got := server.Skip(wire.PacketType(99)); len(got) != 1 {
			t.Errorf("skipped %v", got)
		}
		if k := server.Expect(wire.Data); !k.Mismatched {
			t.Errorf("got %s", describe(k))
		}
		if k := server.Next(); !k.Mismatched {
			t.Errorf("got %s", describe(k))
		}
		server.End(nil)
		if err := agent.ExpectEnd(); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestRefusedAgents(t *testing.T) {
	bubbleServer(t, func(t *testing.T, n *Network, s *Server) {
		refused := TryConnect(t, n.Dialer("agent"), "server", metadata.Pairs("agentid", "a", "agentid", "b"))
		if err := refused.ExpectEnd(); status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "agentid") {
			t.Errorf("got %v", err)
		}
		old := TryConnect(t, n.Dialer("agent"), "server", link.AgentHello{AgentID: "old"}.Metadata())
		p := s.AcceptSilently()
		p.End(status.Error(codes.PermissionDenied, "no"))
		if err := old.ExpectEnd(); status.Code(err) != codes.PermissionDenied {
			t.Errorf("got %v", err)
		}
	})
}

func TestClients(t *testing.T) {
	bubbleServer(t, func(t *testing.T, n *Network, s *Server) {
		for _, ext := range []wire.Extensions{0, wire.ExtHalfClose | wire.ExtReason} {
			client := Proxy(t, n.Dialer("client"), "server", ext)
			server := s.AcceptClient(wire.ExtHalfClose)
			server.Send(wire.Packet{Type: wire.DialResponse, Error: "none", Reason: wire.ReasonNoAgent})
			if k := client.Expect(wire.DialResponse); k.Reason != wire.ReasonNoAgent {
				t.Errorf("got %s", describe(k))
			}
			if got, want := client.Extensions(), ext&wire.ExtHalfClose; got != want {
				t.Errorf("offered %q, answered %q", ext, got)
			}
			client.CloseSend()
			if err := server.ExpectEnd(); !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v", err)
			}
			client.Close()
		}
	})
}

// linkServer is a real link behind a scripted agent.
func linkServer(t *testing.T, n *Network, hello link.AgentHello, cfg link.Config) (*AgentPeer, *link.Link) {
	t.Helper()
	s := Serve(t, n.Listen("link-server"))
	links := make(chan *link.Link, 1)
	go func() {
		p := <-s.streams
		cfg.Stream, cfg.Extensions = p.stream, p.Agent.Extensions
		_ = p.stream.SendHeader(link.ServerHello{ServerID: "s", ServerCount: 1, Extensions: p.Agent.Extensions}.Metadata())
		l := link.New(cfg)
		writer := make(chan error)
		go func() { writer <- l.Run() }()
		links <- l
		for {
			var k wire.Packet
			if l.Recv(&k) != nil {
				break
			}
			// An echo that minds no credit: the tests look at one direction.
			if k.Type == wire.Data {
				l.Grant(k.ConnectionID, int64(k.Payload.Len()))
			}
			k.Payload.Free()
		}
		p.End(l.Err())
		<-writer
	}()
	return Connect(t, n.Dialer("agent"), "link-server", hello), <-links
}

func TestLinkOverGRPC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1 << 20)
		n.ShapeBoth("agent", "link-server", Shape{Latency: 20 * time.Millisecond})
		agent, l := linkServer(t, n, newAgent(), link.Config{})
		advance(time.Minute)
		if got := l.MinRTT(); got != 40*time.Millisecond {
			t.Errorf("MinRTT = %v", got)
		}
		s := l.NewSender(1, 100_000)
		var want []byte
		for i := range 40 {
			b := bytes.Repeat([]byte{byte(i)}, 10_000)
			want = append(want, b...)
			go func() {
				if i == 20 {
					_ = s.AddCredit(1 << 20)
				}
			}()
			if err := s.Write(wire.CopyPayload(b)); err != nil {
				t.Fatal(err)
			}
		}
		s.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
		agent.ExpectData(1, want)
		agent.ExpectOn(wire.CloseRequest, 1)
		agent.SendData(2, make([]byte, 50_000))
		agent.WaitCredit(2, 50_000)
		advance(time.Hour)
		if l.Err() != nil || agent.Pings() < 400 {
			t.Errorf("after an hour: %v, %d pings", l.Err(), agent.Pings())
		}
	})
}

// TestFrozenPeerIsGivenUp: a writer stuck in gRPC does not keep the link from
// noticing, and Kill unblocks it.
func TestFrozenPeerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		began := time.Now()
		agent, l := linkServer(t, n, newAgent(), link.Config{Kill: func(error) { n.Cut("agent", "link-server") }})
		advance(time.Second)
		n.ShapeBoth("agent", "link-server", Shape{Stall: true})
		s := l.NewSender(1, 1<<30)
		wrote := make(chan error, 1)
		go func() {
			for {
				if err := s.Write(wire.PayloadBytes(make([]byte, 32<<10))); err != nil {
					wrote <- err
					return
				}
			}
		}()
		if err := <-wrote; !errors.Is(err, link.ErrSilent) {
			t.Errorf("the writer got %v", err)
		}
		if d := time.Since(began); d < 24*time.Second || d > 26*time.Second {
			t.Errorf("given up after %v", d)
		}
		_ = agent.ExpectEnd()
	})
}

func TestPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(0)
		agent, l := linkServer(t, n, link.AgentHello{AgentID: "old"}, link.Config{})
		agent.SetReading(false)
		s := l.NewSender(1, 0)
		total := make(chan int, 1)
		go func() {
			wrote := 0
			for wrote < 4<<20 {
				_ = s.Write(wire.PayloadBytes(make([]byte, 32<<10)))
				wrote += 32 << 10
			}
			total <- wrote
		}()
		synctest.Wait()
		if len(total) != 0 {
			t.Fatal("4 MiB went to a peer that does not read")
		}
		agent.SetReading(true)
		agent.ExpectData(1, make([]byte, <-total))
	})
}

func TestServerStopsAndGoesAway(t *testing.T) {
	bubbleServer(t, func(t *testing.T, n *Network, s *Server) {
		client := Proxy(t, n.Dialer("client"), "server", 0)
		server := s.AcceptClient(0)
		s.GoAway()
		synctest.Wait()
		server.Send(wire.Packet{Type: wire.Drain})
		client.Expect(wire.Drain)
		client.ExpectNothing()
		s.Stop()
		if err := client.ExpectEnd(); status.Code(err) != codes.Unavailable {
			t.Errorf("ended with %v", err)
		}
	})
}

// failures is a testing.TB that records a fatal failure.
type failures struct {
	testing.TB
	text string
}

func (f *failures) Helper() {}
func (f *failures) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestExpectationsFail: each must be able to.
func TestExpectationsFail(t *testing.T) {
	bubbleServer(t, func(t *testing.T, n *Network, s *Server) {
		for want, script := range map[string]func(client *ClientPeer, server *ServerPeer){
			"no DRAIN within":     func(c *ClientPeer, s *ServerPeer) { c.Expect(wire.Drain) },
			"got DRAIN, want REA": func(c *ClientPeer, s *ServerPeer) { s.Send(wire.Packet{Type: wire.Drain}); c.Expect(wire.Ready) },
			"want it on connection 2": func(c *ClientPeer, s *ServerPeer) {
				s.Send(wire.Packet{Type: wire.CloseRequest, ConnectionID: 1})
				c.ExpectOn(wire.CloseRequest, 2)
			},
			"after 0 bytes":   func(c *ClientPeer, s *ServerPeer) { s.SendData(1, []byte("abc")); c.ExpectData(1, []byte("abd")) },
			"no more credit":  func(c *ClientPeer, s *ServerPeer) { c.WaitCredit(1, 1) },
			"want the end":    func(c *ClientPeer, s *ServerPeer) { s.SendData(1, []byte("abc")); c.ExpectEnd() },
			"no the end":      func(c *ClientPeer, s *ServerPeer) { c.ExpectEnd() },
			"want nothing":    func(c *ClientPeer, s *ServerPeer) { s.SendData(1, []byte("abc")); synctest.Wait(); c.ExpectNothing() },
			"has ended":       func(c *ClientPeer, s *ServerPeer) { s.End(nil); synctest.Wait(); c.ExpectNothing() },
			"the stream ende": func(c *ClientPeer, s *ServerPeer) { s.End(nil); c.Next() },
			"want a dial to": func(c *ClientPeer, s *ServerPeer) {
				s.Send(wire.Packet{Type: wire.DialRequest, Address: "x"})
				c.ExpectDial("y")
			},
			"sending DRAIN": func(c *ClientPeer, s *ServerPeer) { s.End(nil); c.ExpectEnd(); c.Send(wire.Packet{Type: wire.Drain}) },
		} {
			f := &failures{TB: t}
			client := Proxy(t, n.Dialer("client"), "server", 0)
			client.t = f
			server := s.AcceptClient(0)
			done := make(chan struct{})
			go func() {
				defer close(done)
				script(client, server)
			}()
			<-done
			if !strings.Contains(f.text, want) {
				t.Errorf("want a failure with %q, got %q", want, f.text)
			}
			client.Close()
			server.Close()
		}
	})
}

func TestSkipKeepsTheRest(t *testing.T) {
	p := &Peer{arrived: []wire.Packet{{Type: wire.Drain}, {Type: wire.Ready}, {Type: wire.Drain}}}
	if got := p.Skip(wire.Drain); len(got) != 2 {
		t.Errorf("skipped %v", got)
	}
	if !slices.EqualFunc(p.arrived, []wire.Packet{{Type: wire.Ready}}, func(a, b wire.Packet) bool { return a.Type == b.Type }) {
		t.Errorf("kept %v", p.arrived)
	}
	if got := p.Skip(); len(got) != 1 || len(p.arrived) != 0 {
		t.Errorf("skipped %v", got)
	}
}
