package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// meeting is a server that joins two streams: what one client sends, the other
// receives.
type meeting struct {
	*grpc.Server
	listener *bufconn.Listener

	mu      sync.Mutex
	waiting *guest
}

// guest is one of the two.
type guest struct {
	stream grpc.ServerStream
	other  chan *guest   // gets the one that comes second
	over   chan struct{} // closed when CLOSE_RSP was sent
	mu     sync.Mutex
	closed bool
}

func newMeeting(t testing.TB) *meeting {
	m := &meeting{listener: bufconn.Listen(64 << 10)}
	m.Server = grpc.NewServer(grpc.ForceServerCodecV2(link.Codec{}), grpc.UnknownServiceHandler(m.handle), grpc.WaitForHandlers(true))
	served := make(chan struct{})
	go func() {
		defer close(served)
		m.Serve(m.listener)
	}()
	t.Cleanup(func() {
		m.Stop()
		<-served
	})
	return m
}

// find waits for the other guest.
func (m *meeting) find(self *guest) *guest {
	m.mu.Lock()
	if first := m.waiting; first != nil {
		m.waiting = nil
		m.mu.Unlock()
		first.other <- self
		return first
	}
	m.waiting = self
	m.mu.Unlock()
	select {
	case other := <-self.other:
		return other
	case <-self.stream.Context().Done():
		return nil
	}
}

func (g *guest) send(p *wire.Packet) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	return g.stream.SendMsg(p)
}

// end sends CLOSE_RSP and ends the stream.
func (g *guest) end() {
	g.send(&wire.Packet{Type: wire.CloseResponse, ConnectionID: connID})
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.over)
	}
}

func (m *meeting) handle(_ any, stream grpc.ServerStream) error {
	stream.SendHeader(link.ExtensionsMetadata(link.ClientExtensions))
	self := &guest{stream: stream, other: make(chan *guest, 1), over: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- m.carry(self) }()
	select {
	case <-self.over:
		return nil
	case err := <-done:
		return err
	}
}

// carry passes on what self sends, until the stream ends.
func (m *meeting) carry(self *guest) error {
	var p wire.Packet
	if err := self.stream.RecvMsg(&p); err != nil {
		return err
	}
	other := m.find(self)
	if other == nil {
		return net.ErrClosed
	}
	if err := self.send(&wire.Packet{Type: wire.DialResponse, DialID: p.DialID, ConnectionID: connID}); err != nil {
		return err
	}
	for {
		if err := self.stream.RecvMsg(&p); err != nil {
			other.end()
			return err
		}
		switch p.Type {
		case wire.Data, wire.HalfClose:
			err := other.send(&p)
			p.Payload.Free()
			if err != nil {
				self.end()
			}
		case wire.CloseRequest:
			other.end()
			self.end()
		}
	}
}

// options reach the meeting.
func (m *meeting) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return m.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

// pair is two connections that are joined.
func pair(dial func() (net.Conn, error)) (a, b net.Conn, err error) {
	var conns [2]net.Conn
	var errs [2]error
	var dials sync.WaitGroup
	for i := range conns {
		dials.Go(func() { conns[i], errs[i] = dial() })
	}
	dials.Wait()
	return conns[0], conns[1], errors.Join(errs[:]...)
}

func TestNetConn(t *testing.T) {
	t.Run("reusable", func(t *testing.T) {
		t.Cleanup(func() { goleak.VerifyNone(t) })
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			m := newMeeting(t)
			tunnel, err := NewReusable("x", Options{}, m.options()...)
			if err != nil {
				return nil, nil, nil, err
			}
			a, b, err := pair(func() (net.Conn, error) { return tunnel.DialContext(t.Context(), "tcp", endpoint) })
			stop := func() {
				a.Close()
				b.Close()
				tunnel.Close()
				m.Stop()
			}
			return a, b, stop, err
		})
	})
	t.Run("single-use", func(t *testing.T) {
		t.Cleanup(func() { goleak.VerifyNone(t) })
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			m := newMeeting(t)
			a, b, err := pair(func() (net.Conn, error) {
				tunnel, err := NewSingleUse(t.Context(), "x", Options{}, m.options()...)
				if err != nil {
					return nil, err
				}
				return tunnel.DialContext(t.Context(), "tcp", endpoint)
			})
			stop := func() {
				a.(*Conn).CloseContext(t.Context())
				b.(*Conn).CloseContext(t.Context())
				m.Stop()
			}
			return a, b, stop, err
		})
	})
}
