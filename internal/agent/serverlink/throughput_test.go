package serverlink

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// benchServer is a server made of a real link: it dials one endpoint and then
// moves bytes as fast as the agent takes or gives them.
type benchServer struct {
	link *link.Link

	mu      sync.Mutex
	changed sync.Cond
	answers map[wire.DialID]wire.Packet
	senders map[wire.ConnectionID]*link.Sender
	got     map[wire.ConnectionID]int
	closed  map[wire.ConnectionID]bool
}

func (s *benchServer) serve(stream grpc.ServerStream, up chan<- *benchServer) error {
	hello := link.ServerHello{ServerID: "bench", ServerCount: 1, Extensions: wire.AllExtensions}
	if err := stream.SendHeader(hello.Metadata()); err != nil {
		return err
	}
	s.link = link.New(link.Config{Stream: stream, Extensions: wire.AllExtensions})
	written := make(chan struct{})
	go func() {
		defer close(written)
		_ = s.link.Run()
	}()
	up <- s
	for {
		var p wire.Packet
		if err := s.link.Recv(&p); err != nil {
			s.link.Close(err)
			<-written
			return nil
		}
		s.take(p)
	}
}

func (s *benchServer) take(p wire.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch p.Type {
	case wire.DialResponse:
		s.answers[p.DialID] = p
		s.senders[p.ConnectionID] = s.link.NewSender(p.ConnectionID, p.Window)
	case wire.Data:
		s.got[p.ConnectionID] += p.Payload.Len()
		s.link.Grant(p.ConnectionID, int64(p.Payload.Len()))
		p.Payload.Free()
	case wire.Credit:
		if snd := s.senders[p.ConnectionID]; snd != nil {
			_ = snd.AddCredit(p.Window)
		}
	case wire.CloseResponse:
		s.closed[p.ConnectionID] = true
	}
	s.changed.Broadcast()
}

func (s *benchServer) wait(ok func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !ok() {
		s.changed.Wait()
	}
}

func (s *benchServer) dial(id wire.DialID, address string) (wire.ConnectionID, *link.Sender) {
	s.link.Send(wire.Packet{Type: wire.DialRequest, DialID: id, Protocol: "tcp", Address: address, Window: 4 << 20})
	s.wait(func() bool { return s.answers[id].ConnectionID != 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.answers[id].ConnectionID
	return conn, s.senders[conn]
}

// benchWorld starts an agent's link over loopback, and an endpoint.
func benchWorld(b *testing.B, endpointDoes func(net.Conn)) (*benchServer, string) {
	b.Helper()
	s := &benchServer{
		answers: map[wire.DialID]wire.Packet{}, senders: map[wire.ConnectionID]*link.Sender{},
		got: map[wire.ConnectionID]int{}, closed: map[wire.ConnectionID]bool{},
	}
	s.changed.L = &s.mu
	up := make(chan *benchServer, 1)
	gs := grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		return s.serve(stream, up)
	}), grpc.StaticConnWindowSize(16<<20), grpc.StaticStreamWindowSize(16<<20))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = gs.Serve(l) }()
	ep, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			c, err := ep.Accept()
			if err != nil {
				return
			}
			go endpointDoes(c)
		}
	}()
	rooms := endpoint.New(endpoint.Config{}, endpoint.NewNetDialer(endpoint.NetDialerConfig{}), nil)
	conn := New(Config{
		AgentID: "a", Instance: "i", Extensions: wire.AllExtensions, Credentials: insecure.NewCredentials(),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		},
	}, rooms, nil)
	lk, err := conn.Connect(b.Context(), Target{Host: "localhost", Address: l.Addr().String()})
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = lk.Run(&events{})
	}()
	<-up
	b.Cleanup(func() {
		gs.Stop()
		<-done
		_ = ep.Close()
		rooms.Close()
	})
	return s, ep.Addr().String()
}

const benchChunk = 32 << 10

func BenchmarkUp(b *testing.B) {
	arrived := make(chan int64, 1)
	s, address := benchWorld(b, func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		arrived <- n
		_ = c.Close()
	})
	id, snd := s.dial(1, address)
	data := make([]byte, benchChunk)
	b.SetBytes(benchChunk)
	b.ReportAllocs()
	for b.Loop() {
		if err := snd.Write(wire.PayloadBytes(data)); err != nil {
			b.Fatal(err)
		}
	}
	snd.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
	if n := <-arrived; n < int64(b.N)*benchChunk {
		b.Fatalf("%d bytes arrived", n)
	}
}

func BenchmarkDown(b *testing.B) {
	s, address := benchWorld(b, func(c net.Conn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	id, _ := s.dial(1, address)
	b.SetBytes(benchChunk)
	b.ReportAllocs()
	want := 0
	for b.Loop() {
		want += benchChunk
		s.wait(func() bool { return s.got[id] >= want })
	}
}

func BenchmarkRequestResponse(b *testing.B) {
	s, address := benchWorld(b, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_ = c.Close()
	})
	id, snd := s.dial(1, address)
	data := make([]byte, 64)
	b.ReportAllocs()
	want := 0
	for b.Loop() {
		want += len(data)
		_ = snd.Write(wire.PayloadBytes(data))
		s.wait(func() bool { return s.got[id] >= want })
	}
}

func BenchmarkDialEchoClose(b *testing.B) {
	s, address := benchWorld(b, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_ = c.Close()
	})
	b.ReportAllocs()
	dial := wire.DialID(0)
	for b.Loop() {
		dial++
		id, snd := s.dial(dial, address)
		_ = snd.Write(wire.PayloadBytes([]byte("hello")))
		s.wait(func() bool { return s.got[id] >= 5 })
		snd.Finish(wire.Packet{Type: wire.CloseRequest, ConnectionID: id})
		s.wait(func() bool { return s.closed[id] })
	}
}
