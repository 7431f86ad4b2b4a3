package oldpeers

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/culvert-proxy/culvert/internal/agent"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// place is an agent of ours in fake time, between scripted old servers and
// endpoints, which the test plays both.
type place struct {
	t     *testing.T
	net   *tunneltest.Network
	agent *agent.Agent
	stop  context.CancelFunc // SIGTERM
	ended chan struct{}      // closed when the process would have ended
	began time.Time

	listener *tunneltest.Listener // of the old server's agent port
	servers  *tunneltest.Server   // the old server itself
	server   *tunneltest.ServerPeer
}

// agentConfig is how flags have it.
func agentConfig() agent.Config {
	return agent.Config{
		AgentID:     "a",
		ServerHosts: []string{"server"},
		ServerPort:  8091,
		QueueSize:   150,
		LameDuck:    5 * time.Second,
		FlowBudget:  1 << 30,
	}
}

// withAgent plays f with an agent that is connected to one old server.
func withAgent(t *testing.T, f func(t *testing.T, p *place)) {
	t.Helper()
	withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
		p.accept()
		f(t, p)
	})
}

// withLonelyAgent plays f with an agent that nobody has answered yet.
func withLonelyAgent(t *testing.T, cfg agent.Config, f func(t *testing.T, p *place)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t, tunneltest.NewNetwork(0), cfg)
		f(t, p)
	})
}

// newPlace starts an agent, which ends with the test, and an old server that has
// not answered it yet.
func newPlace(t *testing.T, network *tunneltest.Network, cfg agent.Config) *place {
	t.Helper()
	p := &place{t: t, net: network, began: time.Now(), listener: network.Listen("server:8091")}
	p.startAgent(cfg)
	p.servers = tunneltest.Serve(t, p.listener, oldServerKeepalive()...)
	return p
}

// young is the host whose port 8091 is the agents' side of a server of ours.
const young = "young"

// startAgent starts the agent, and ends it with the test.
func (p *place) startAgent(cfg agent.Config) {
	p.t.Helper()
	process, err := agent.New(cfg, agent.Deps{
		DialServer: func(ctx context.Context, address string) (net.Conn, error) {
			if address == young+":8091" {
				address = agents
			}
			return p.net.Dialer("agent")(ctx, address)
		},
		Lookup:       func(_ context.Context, host string) ([]string, error) { return []string{host}, nil },
		DialEndpoint: endpoints{p.net},
		NoPorts:      true,
		Chance:       func() float64 { return 0 },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.agent, p.ended = process, make(chan struct{})
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	go func() {
		defer close(p.ended)
		if err := process.Run(ctx); err != nil {
			p.t.Errorf("the agent ended: %v", err)
		}
	}()
	p.t.Cleanup(func() {
		p.stop()
		<-p.ended
		wantIdle(p.t, process.Gatherer())
	})
}

// oldServerKeepalive is how old servers ping and what pings they allow. COMPAT 7.6.
func oldServerKeepalive() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Hour, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 30 * time.Second, PermitWithoutStream: true}),
	}
}

// accept takes the agent's stream as an old server does.
func (p *place) accept() {
	p.t.Helper()
	p.server = p.servers.AcceptAgent(link.ServerHello{ServerID: "s", ServerCount: 1})
	synctest.Wait()
}

// endpoints dials what the test listens on.
type endpoints struct{ net *tunneltest.Network }

// Dial implements endpoint.Dialer.
func (e endpoints) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	return e.net.Dialer("agent")(ctx, address)
}

// listen makes an endpoint.
func (p *place) listen(address string) *tunneltest.Listener {
	l := p.net.Listen(address)
	p.t.Cleanup(func() { l.Close() })
	return l
}

// opened makes a connection to an endpoint, and returns the endpoint's side of it.
func (p *place) opened(l *tunneltest.Listener, random wire.DialID, id wire.ConnectionID) *tunneltest.Conn {
	p.t.Helper()
	req := dialReq(random)
	req.Address = l.Addr().String()
	p.server.Send(req)
	expect(p.t, p.server.Peer, dialRsp(random, id))
	return p.take(l)
}

// take is the next connection that has come to an endpoint.
func (p *place) take(l *tunneltest.Listener) *tunneltest.Conn {
	p.t.Helper()
	conn, err := l.Accept()
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close() })
	return conn.(*tunneltest.Conn)
}

// number is a sum over the agent's metrics.
func (p *place) number(name string, labels ...string) int {
	p.t.Helper()
	return number(p.t, p.agent.Gatherer(), name, labels...)
}

// wantConnections checks how many connections to endpoints are open.
func (p *place) wantConnections(n int) {
	p.t.Helper()
	synctest.Wait()
	if got := p.number("konnectivity_network_proxy_agent_open_endpoint_connections"); got != n {
		p.t.Errorf("%d connections to endpoints, want %d", got, n)
	}
}

// reads checks that exactly these bytes come next at an endpoint.
func reads(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("the endpoint read %q, %v, want %q", got, err, want)
	}
}

// readsEOF checks that the endpoint is told the orderly end, with nothing before.
func readsEOF(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("the endpoint read %d bytes, %v, want the end", n, err)
	}
}

// writes sends bytes from an endpoint.
func writes(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatalf("the endpoint writes %q: %v", text, err)
	}
}

// echoes checks that data passes both ways on a connection.
func (p *place) echoes(conn net.Conn, id wire.ConnectionID) {
	p.t.Helper()
	p.server.Send(data(id, "there"))
	reads(p.t, conn, "there")
	writes(p.t, conn, "back")
	expect(p.t, p.server.Peer, data(id, "back"))
}
