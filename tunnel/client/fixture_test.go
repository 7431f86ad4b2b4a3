package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

const (
	endpoint = "endpoint.example:443"
	connID   = wire.ConnectionID(7)
)

// stage is a scripted server and what a client is told to observe.
type stage struct {
	*testing.T
	network *tunneltest.Network
	server  *tunneltest.Server
	seen    *recorder
	ext     wire.Extensions // what the server can do; none for an old one
	opts    Options
	single  bool // tunnels are single-use
	tunnels []Tunnel
}

// variants runs f in fake time with both kinds of tunnel and with a new and an
// old server. At the end of each, nothing may be left: neither a goroutine, which
// the bubble would wait for, nor a connection.
func variants(t *testing.T, f func(s *stage)) {
	t.Helper()
	for _, single := range []bool{true, false} {
		for _, ext := range []wire.Extensions{link.ClientExtensions, 0} {
			name := map[bool]string{true: "single-use", false: "reusable"}[single] + "/" + map[bool]string{true: "old", false: "new"}[ext == 0]
			t.Run(name, func(t *testing.T) { bubble(t, single, ext, f) })
		}
	}
}

// newServer is variants with a new server and a reusable tunnel only, for what
// depends on neither.
func newServer(t *testing.T, f func(s *stage)) {
	t.Helper()
	bubble(t, false, link.ClientExtensions, f)
}

func bubble(t *testing.T, single bool, ext wire.Extensions, f func(s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := tunneltest.NewNetwork(0)
		listener := network.Listen("server")
		s := &stage{T: t, network: network, server: tunneltest.Serve(t, listener), seen: newRecorder(), ext: ext, single: single}
		s.opts.Observer = s.seen
		f(s)
		for _, tunnel := range s.tunnels {
			tunnel.Close()
		}
		s.server.Stop()
		synctest.Wait()
		if n := network.Open(); n > 0 {
			t.Errorf("%d gRPC connections are left", n)
		}
		s.seen.settled(t)
	})
}

// dialOptions reach the scripted server.
func (s *stage) dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithContextDialer(s.network.Dialer("client")),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}
}

// tunnel makes one, which the test's end closes.
func (s *stage) tunnel() Tunnel {
	s.Helper()
	t, err := s.tryTunnel(s.Context())
	if err != nil {
		s.Fatalf("tunnel: %v", err)
	}
	s.keep(t)
	return t
}

// keep sees to it that a tunnel is closed at the end, or if the test fails.
func (s *stage) keep(t Tunnel) {
	s.tunnels = append(s.tunnels, t)
	s.Cleanup(func() { t.Close() })
}

// stall lets nothing through between client and server, or all again.
func (s *stage) stall(on bool) {
	s.network.ShapeBoth("client", "server", tunneltest.Shape{Stall: on})
}

func (s *stage) tryTunnel(ctx context.Context) (Tunnel, error) {
	if s.single {
		t, err := NewSingleUse(ctx, "server", s.opts, s.dialOptions()...)
		if err != nil {
			return nil, err
		}
		return t, nil
	}
	return NewReusable("server", s.opts, s.dialOptions()...)
}

// result is what a dial returned.
type result struct {
	conn *Conn
	err  error
	took time.Duration
}

// dial starts a dial.
func (s *stage) dial(ctx context.Context, t Tunnel) <-chan result {
	done := make(chan result, 1)
	began := time.Now()
	go func() {
		c, err := t.DialContext(ctx, "tcp", endpoint)
		r := result{err: err, took: time.Since(began)}
		if err == nil {
			r.conn = c.(*Conn)
		} else if c != nil {
			s.Errorf("a failed dial returned a connection: %v", c)
		}
		done <- r
	}()
	return done
}

// dialled starts a dial on a tunnel of its own and plays the server up to the
// DIAL_REQ.
func (s *stage) dialled(ctx context.Context) (Tunnel, *tunneltest.ServerPeer, wire.Packet, <-chan result) {
	s.Helper()
	t := s.tunnel()
	done := s.dial(ctx, t)
	peer := s.server.AcceptClient(s.ext)
	return t, peer, peer.ExpectDial(endpoint), done
}

// connected is a tunnel with a connection on it, and the server's end of that.
func (s *stage) connected() (*Conn, *tunneltest.ServerPeer) {
	s.Helper()
	_, peer, req, done := s.dialled(s.Context())
	peer.Send(wire.Packet{Type: wire.DialResponse, DialID: req.DialID, ConnectionID: connID})
	r := <-done
	if r.err != nil {
		s.Fatalf("dial: %v", r.err)
	}
	return r.conn, peer
}

// failure is the error of a dial that must have failed, with that reason.
func (s *stage) failure(r result, reason wire.Reason) *wire.DialError {
	s.Helper()
	var e *wire.DialError
	if !errors.As(r.err, &e) {
		s.Fatalf("got %v, want a DialError", r.err)
	}
	if e.Reason != reason {
		s.Fatalf("reason %v (%v), want %v", e.Reason, e, reason)
	}
	return e
}

// ended fails the test if nothing follows, and the stream has not ended, for the
// server.
func (s *stage) ended(peer *tunneltest.ServerPeer) {
	s.Helper()
	_ = peer.ExpectEnd()
}

// readAll reads until the end, and checks the bytes.
func (s *stage) readAll(c *Conn, want string) error {
	s.Helper()
	var got []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err == nil {
			continue
		}
		if string(got) != want {
			s.Fatalf("read %d bytes and %v, want %d bytes", len(got), err, len(want))
		}
		return err
	}
}

// orderly fails the test unless err is io.EOF itself.
func (s *stage) orderly(err error) {
	s.Helper()
	if err != io.EOF { //nolint:errorlint // a wrapped one would not do
		s.Fatalf("got %v, want io.EOF", err)
	}
}

// abnormal fails the test unless err is an EndError with that reason, and not
// to be taken for an orderly end.
func (s *stage) abnormal(err error, reason wire.Reason) {
	s.Helper()
	var e *EndError
	if !errors.As(err, &e) || errors.Is(err, io.EOF) {
		s.Fatalf("got %v, want an EndError", err)
	}
	if e.Reason != reason {
		s.Fatalf("got reason %v, want %v", e.Reason, reason)
	}
}

// recorder is an Observer that keeps a list.
type recorder struct {
	mu     sync.Mutex
	status map[Status]int
	list   []string
}

func newRecorder() *recorder { return &recorder{status: map[Status]int{}} }

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf(format, args...))
}

func (r *recorder) Sent(t wire.PacketType)                  { r.add("sent %v", t) }
func (r *recorder) SendFailed(t wire.PacketType, err error) { r.add("send %v failed", t) }
func (r *recorder) Received(t wire.PacketType)              { r.add("received %v", t) }
func (r *recorder) ReceiveFailed(err error)                 { r.add("receive failed") }
func (r *recorder) DialFailed(err *wire.DialError)          { r.add("dial failed: %v", err.Reason) }

func (r *recorder) StatusChanged(from, to Status) {
	r.add("%v to %v", from, to)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[from]--
	r.status[to]++
}

// has reports whether line was recorded.
func (r *recorder) has(line string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.list, line)
}

// now is how many connections have that status.
func (r *recorder) now(s Status) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status[s]
}

// settled fails the test unless every gauge is back at zero.
func (r *recorder) settled(t *testing.T) {
	t.Helper()
	for _, s := range []Status{StatusCreated, StatusDialing, StatusOK} {
		if n := r.now(s); n != 0 {
			t.Errorf("%d connections are still counted as %v", n, s)
		}
	}
}
