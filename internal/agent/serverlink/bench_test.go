package serverlink

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// bench is a connector and a scripted server, in fake time.
type bench struct {
	t      *testing.T
	net    *tunneltest.Network
	lis    *tunneltest.Listener
	server *tunneltest.Server
	rooms  *endpoint.Endpoints
	conn   *Connector
	cfg    Config
}

// dialOn adapts a network to endpoint.Dialer.
type dialOn struct{ net *tunneltest.Network }

func (d dialOn) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	return d.net.Dialer("agent")(ctx, address)
}

func inBubble(t *testing.T, change func(*Config), test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, net: tunneltest.NewNetwork(0)}
		b.lis = b.net.Listen("server:1")
		b.server = tunneltest.Serve(t, b.lis, grpc.MaxRecvMsgSize(1<<20))
		b.cfg = Config{
			AgentID:     "agent-1",
			Identifiers: func(context.Context) (string, error) { return "host=h", nil },
			Instance:    "instance-1",
			Extensions:  wire.AllExtensions,
			Credentials: insecure.NewCredentials(),
			Dial:        b.net.Dialer("agent"),
			Keepalive:   keepalive.ClientParameters{Time: 40 * time.Second, Timeout: 20 * time.Second},
		}
		if change != nil {
			change(&b.cfg)
		}
		b.rooms = endpoint.New(endpoint.Config{}, dialOn{b.net}, nil)
		b.conn = New(b.cfg, b.rooms, nil)
		test(t, b)
		b.server.Stop()
		b.rooms.Close()
		if n := b.rooms.Open(); n != 0 {
			t.Errorf("%d connections left", n)
		}
	})
}

func (b *bench) target() Target { return Target{Host: "server", Address: "server:1"} }

// connected is what Connect returned.
type connected struct {
	link *Link
	err  error
}

func (b *bench) start(ctx context.Context) <-chan connected {
	result := make(chan connected, 1)
	go func() {
		l, err := b.conn.Connect(ctx, b.target())
		result <- connected{l, err}
	}()
	return result
}

// connect connects to a server that says hello.
func (b *bench) connect(hello link.ServerHello) (*Link, *tunneltest.ServerPeer) {
	b.t.Helper()
	result := b.start(b.t.Context())
	peer := b.server.AcceptAgent(hello)
	r := <-result
	if r.err != nil {
		b.t.Fatal(r.err)
	}
	return r.link, peer
}

// events records what a server said.
type events struct {
	mu       sync.Mutex
	counts   []int
	draining int
}

func (e *events) CountChanged(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts = append(e.counts, n)
}

func (e *events) Draining() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.draining++
}

// running is a link that is kept.
type running struct {
	*Link
	peer   *tunneltest.ServerPeer
	events *events
	ended  chan error
}

func (b *bench) run(hello link.ServerHello) *running {
	b.t.Helper()
	l, peer := b.connect(hello)
	r := &running{Link: l, peer: peer, events: &events{}, ended: make(chan error, 1)}
	go func() { r.ended <- l.Run(r.events) }()
	if hello.Extensions.Has(wire.ExtReady) {
		peer.Expect(wire.Ready)
	}
	return r
}

func newServer() link.ServerHello {
	return link.ServerHello{ServerID: "s1", ServerCount: 2, Extensions: wire.AllExtensions}
}

func oldServer() link.ServerHello { return link.ServerHello{ServerID: "s1", ServerCount: 2} }

// open dials an endpoint through the link and returns its side.
func (b *bench) open(r *running, listener *tunneltest.Listener) (wire.ConnectionID, net.Conn) {
	b.t.Helper()
	r.peer.Send(wire.Packet{Type: wire.DialRequest, DialID: 1, Protocol: "tcp", Address: listener.Addr().String(), Window: 1 << 20, CanHalfClose: true})
	ep, err := listener.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	rsp := r.peer.Expect(wire.DialResponse)
	if rsp.ConnectionID == 0 {
		b.t.Fatalf("dial failed: %s", rsp.Error)
	}
	return rsp.ConnectionID, ep
}

var errTest = errors.New("test")
