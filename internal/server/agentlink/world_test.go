package agentlink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/internal/transport"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// world is an agents' listener named "server" in fake time, with a real relay
// behind it.
type world struct {
	t     *testing.T
	net   *tunneltest.Network
	links *Server
	relay *relay.Relay
	obs   *counts

	mu       sync.Mutex
	count    int
	backends []*relay.Peer
	ids      map[*relay.Peer]wire.Identifiers
	joins    int
	auth     func(Candidate) error
}

// bubble runs f in fake time.
func bubble(t *testing.T, cfg Config, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, net: tunneltest.NewNetwork(0), obs: newCounts(), count: 1, ids: map[*relay.Peer]wire.Identifiers{}}
		w.relay = relay.New(relay.Config{}, w, nil)
		cfg.ServerID = "s1"
		cfg.Logger = klog.Background()
		w.links = New(cfg, func() int { w.mu.Lock(); defer w.mu.Unlock(); return w.count }, w.relay, w, w, w.obs)
		opts := append(ServerOptions(transport.AgentKeepalive(0)), grpc.Creds(transport.Cleartext()))
		server := grpc.NewServer(opts...)
		w.links.Register(server)
		go server.Serve(w.net.Listen("server"))
		t.Cleanup(func() {
			server.Stop()
			synctest.Wait()
			if n := w.links.Links(); n != 0 || len(w.backends) != 0 || w.obs.streams() != 0 {
				t.Errorf("left over: %d links, %d backends, %d streams", n, len(w.backends), w.obs.streams())
			}
		})
		f(t, w)
	})
}

// all is what a server of today offers.
func all() Config { return Config{Extensions: wire.AllExtensions} }

// Join implements Router.
func (w *world) Join(p *relay.Peer, ids wire.Identifiers) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.backends = append(w.backends, p)
	w.ids[p] = ids
	w.joins++
}

// Leave implements Router.
func (w *world) Leave(p *relay.Peer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.backends, p)
	if i < 0 {
		w.t.Error("a link left that had not joined")
		return
	}
	w.backends = slices.Delete(w.backends, i, i+1)
}

// Pick implements relay.Router: the newest backend wins.
func (w *world) Pick(_ string, skip func(*relay.Peer) bool) (*relay.Peer, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range slices.Backward(w.backends) {
		if !skip(p) {
			return p, true
		}
	}
	return nil, false
}

// Authenticate implements Authenticator.
func (w *world) Authenticate(_ context.Context, c Candidate) error {
	if w.auth == nil {
		return nil
	}
	return w.auth(c)
}

// settled is the list of backends' "agentID/instance/slot", when all is quiet.
func (w *world) settled() []string {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	names := []string{}
	for _, p := range w.backends {
		i := p.Info()
		names = append(names, i.AgentID+"/"+i.Instance+"/"+i.Slot)
	}
	return names
}

func (w *world) wantBackends(names ...string) {
	w.t.Helper()
	if got := w.settled(); !slices.Equal(got, names) {
		w.t.Fatalf("backends %q, want %q", got, names)
	}
}

// connect is a scripted agent on the host of that name.
func (w *world) connect(host string, hello link.AgentHello) *tunneltest.AgentPeer {
	w.t.Helper()
	return tunneltest.Connect(w.t, w.net.Dialer(host), "server", hello)
}

func oldAgent(id string) link.AgentHello { return link.AgentHello{AgentID: id} }

func newAgent(id, instance, slot string) link.AgentHello {
	return link.AgentHello{AgentID: id, Instance: instance, Slot: slot, Extensions: wire.AllExtensions}
}

// readyAgent is a new agent that keeps its link.
func (w *world) readyAgent(host string, hello link.AgentHello) *tunneltest.AgentPeer {
	w.t.Helper()
	a := w.connect(host, hello)
	a.Send(wire.Packet{Type: wire.Ready})
	synctest.Wait()
	return a
}

// client is a frontend that only remembers.
type client struct {
	block  chan struct{} // if not nil, Write waits for it
	mu     sync.Mutex
	id     wire.ConnectionID
	failed *wire.DialError
	data   []byte
	end    *relay.End
}

func (c *client) Established(id wire.ConnectionID) error { c.set(func() { c.id = id }); return nil }
func (c *client) Failed(err *wire.DialError)             { c.set(func() { c.failed = err }) }
func (c *client) CloseWrite() error                      { return nil }
func (c *client) Close(end relay.End)                    { c.set(func() { c.end = &end }) }
func (c *client) Interrupt()                             {}
func (c *client) Write(p wire.Payload) error {
	if c.block != nil {
		<-c.block
	}
	c.set(func() { c.data = append(c.data, p.Bytes()...) })
	p.Free()
	return nil
}

// over is how the tunnel has ended, nil if it has not, when all is quiet and what
// was lost has been given up.
func (c *client) over() *relay.End {
	pass(lossGrace)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end
}

// got is what has come, when all is quiet.
func (c *client) got() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.data)
}

func (c *client) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// dial opens a tunnel from a client that only remembers.
func (w *world) dial(address string) (*relay.Tunnel, *client) {
	c := &client{}
	return w.relay.Open(context.Background(), relay.Request{DialID: 1, Protocol: "tcp", Address: address, Frontend: "test"}, c), c
}

// open dials through a, which accepts as id.
func (w *world) open(a *tunneltest.AgentPeer, id wire.ConnectionID) (*relay.Tunnel, *client) {
	w.t.Helper()
	tun, c := w.dial("h:1")
	k := a.ExpectDial("h:1")
	a.Send(wire.Packet{Type: wire.DialResponse, DialID: k.DialID, ConnectionID: id, Window: 1 << 20})
	if err := tun.WaitEstablished(); err != nil {
		w.t.Fatal(err)
	}
	return tun, c
}

// counts is an observer.
type counts struct {
	mu         sync.Mutex
	open       int
	sent, got  map[wire.PacketType]int
	refused    map[Refusal]int
	ignored    []string
	duplicates []string
	replaced   int
	receiveErr []error
}

func newCounts() *counts {
	return &counts{sent: map[wire.PacketType]int{}, got: map[wire.PacketType]int{}, refused: map[Refusal]int{}}
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
func (c *counts) StreamOpened(d int)           { c.do(func() { c.open += d }) }
func (c *counts) Refused(r Refusal)            { c.do(func() { c.refused[r]++ }) }
func (c *counts) IdentifierIgnored(key string) { c.do(func() { c.ignored = append(c.ignored, key) }) }
func (c *counts) DuplicateAgentID(id string) {
	c.do(func() { c.duplicates = append(c.duplicates, id) })
}
func (c *counts) LinkReplaced() { c.do(func() { c.replaced++ }) }

func (c *counts) streams() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

var errNo = errors.New("not this one")

// pass lets fake time pass.
func pass(d time.Duration) { <-time.After(d) }
