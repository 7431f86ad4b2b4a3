package frontgrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// world is a whole server in fake time: a frontend named "front" and an agents'
// listener named "agents", with a real relay between them. What is scripted is
// the agent and the client.
type world struct {
	t     *testing.T
	net   *tunneltest.Network
	relay *relay.Relay
	obs   *counts

	mu       sync.Mutex
	backends []*relay.Peer
}

// bubble runs f in fake time, and checks that it leaves nothing behind.
func bubble(t *testing.T, f func(t *testing.T, w *world)) { bubbleWith(t, wire.AllExtensions, nil, f) }

func bubbleWith(t *testing.T, ext wire.Extensions, inner tap.ServerInHandle, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: tunneltest.NewNetwork(0), obs: newCounts()}
		w.relay = relay.New(relay.Config{BackendDialTimeout: 7 * time.Second}, w, nil)

		front := New(Config{ServerID: "s", Extensions: ext}, w.relay, w.obs)
		kp, policy := transport.FrontendKeepalive(0)
		fs := grpc.NewServer(append(ServerOptions(kp, policy, inner), grpc.Creds(transport.Cleartext()))...)
		front.Register(fs)
		go fs.Serve(w.net.Listen("front"))

		links := agentlink.New(agentlink.Config{Extensions: ext, Logger: klog.Background()}, func() int { return 1 }, w.relay, w, nil, nil)
		as := grpc.NewServer(append(agentlink.ServerOptions(transport.AgentKeepalive(0)), grpc.Creds(transport.Cleartext()))...)
		links.Register(as)
		go as.Serve(w.net.Listen("agents"))

		t.Cleanup(func() {
			fs.Stop()
			as.Stop()
			synctest.Wait()
			if w.relay.Tunnels() != 0 || w.relay.Pending() != 0 || w.obs.streams() != 0 {
				t.Errorf("left over: %d tunnels, %d pending dials, %d streams", w.relay.Tunnels(), w.relay.Pending(), w.obs.streams())
			}
		})
		f(t, w)
	})
}

// Join implements agentlink.Router.
func (w *world) Join(p *relay.Peer, _ wire.Identifiers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backends = append(w.backends, p)
}

// Leave implements agentlink.Router.
func (w *world) Leave(p *relay.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backends = slices.DeleteFunc(w.backends, func(o *relay.Peer) bool { return o == p })
}

// Pick implements relay.Router.
func (w *world) Pick(_ string, skip func(*relay.Peer) bool) (*relay.Peer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.backends {
		if !skip(p) {
			return p, true
		}
	}
	return nil, false
}

// agent is a scripted old agent, which is a backend.
func (w *world) agent() *tunneltest.AgentPeer {
	w.t.Helper()
	a := tunneltest.Connect(w.t, w.net.Dialer("agent"), "agents", link.AgentHello{AgentID: "a"})
	synctest.Wait()
	return a
}

// newAgent is a scripted agent with all extensions, which is a backend.
func (w *world) newAgent() *tunneltest.AgentPeer {
	w.t.Helper()
	a := tunneltest.Connect(w.t, w.net.Dialer("agent"), "agents", link.AgentHello{AgentID: "a", Instance: "i", Slot: "0", Extensions: wire.AllExtensions})
	a.Send(wire.Packet{Type: wire.Ready})
	synctest.Wait()
	return a
}

// client is a scripted client; without extensions an old one.
func (w *world) client(ext wire.Extensions) *tunneltest.ClientPeer {
	w.t.Helper()
	return tunneltest.Proxy(w.t, w.net.Dialer("client"), "front", ext)
}

// stream is a bare stream, for tests that do not follow a script. end ends it
// abruptly.
func (w *world) stream(host, listener, method string, md metadata.MD) (s grpc.ClientStream, end func()) {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+listener, grpc.WithContextDialer(w.net.Dialer(host)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(link.Codec{})))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(context.Background(), md))
	s, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		w.t.Error(err)
	}
	return s, func() { cancel(); conn.Close() }
}

func dial(id wire.DialID) wire.Packet {
	return wire.Packet{Type: wire.DialRequest, Protocol: "tcp", Address: "h:1", DialID: id}
}

func data(id wire.ConnectionID, text string) wire.Packet {
	return wire.Packet{Type: wire.Data, ConnectionID: id, Payload: wire.PayloadBytes([]byte(text))}
}

func closeReq(id wire.ConnectionID) wire.Packet {
	return wire.Packet{Type: wire.CloseRequest, ConnectionID: id}
}

func closeRsp(id wire.ConnectionID) wire.Packet {
	return wire.Packet{Type: wire.CloseResponse, ConnectionID: id}
}

// open makes a tunnel from c through a, with dial ID 42 and that connection ID.
func (w *world) open(c *tunneltest.ClientPeer, a *tunneltest.AgentPeer, id wire.ConnectionID) {
	w.t.Helper()
	c.Send(dial(42))
	k := a.ExpectDial("h:1")
	a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: id, Window: 1 << 20})
	if k := c.ExpectOn(wire.DialResponse, id); k.DialID != 42 || k.Error != "" {
		w.t.Fatalf("dial answered with %+v", k)
	}
}

// wantEOF checks that the stream ends with status OK.
func wantEOF(t *testing.T, p interface{ ExpectEnd() error }) {
	t.Helper()
	if err := p.ExpectEnd(); !errors.Is(err, io.EOF) {
		t.Errorf("stream ended with %v, want status OK", err)
	}
}

// counts is an observer.
type counts struct {
	mu         sync.Mutex
	open       int
	sent, got  map[wire.PacketType]int
	receiveErr []error
}

func newCounts() *counts {
	return &counts{sent: map[wire.PacketType]int{}, got: map[wire.PacketType]int{}}
}

func (c *counts) do(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *counts) Sent(t wire.PacketType)            { c.do(func() { c.sent[t]++ }) }
func (c *counts) SendFailed(wire.PacketType, error) {}
func (c *counts) Received(t wire.PacketType)        { c.do(func() { c.got[t]++ }) }
func (c *counts) ReceiveFailed(err error) {
	c.do(func() { c.receiveErr = append(c.receiveErr, err) })
}
func (c *counts) StreamOpened(d int) { c.do(func() { c.open += d }) }

func (c *counts) streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }

// tapped is a tap of somebody else's.
func tapped(called *int) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		*called++
		return ctx, nil
	}
}
