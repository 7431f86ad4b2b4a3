package oldpeers

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// The names of the server's two sides on the network.
const (
	front  = "front"
	agents = "agents"
)

// stage is a server of ours in fake time, with old peers around it that the test
// plays.
type stage struct {
	t      *testing.T
	net    *tunneltest.Network
	server *server.Server
	stop   context.CancelFunc // SIGTERM
	ended  chan struct{}      // closed when the process would have ended
	began  time.Time

	// agent is an old agent, and neighbour a tunnel of an old client through it,
	// with connection ID 1. A script that has no use for it any more sets it nil.
	agent     *tunneltest.AgentPeer
	neighbour *tunnel
	randoms   wire.DialID // the last one that was used
}

// config is how flags have it.
func config() server.Config {
	return server.Config{
		ServerID:           "s",
		Mode:               server.ModeGRPC,
		Strategies:         []backend.Strategy{backend.Default},
		ServerCount:        1,
		BackendDialTimeout: 7 * time.Second,
		DialAttempts:       3,
		QueueSize:          10,
		FlowBudget:         1 << 30,
	}
}

// withServer plays f on a server with an agent and a neighbour.
func withServer(t *testing.T, f func(t *testing.T, s *stage)) {
	t.Helper()
	withBareServer(t, config(), func(t *testing.T, s *stage) {
		s.agent = s.connect("a")
		s.neighbour = s.open(s.client(), s.agent, 1)
		s.neighbour.works()
		f(t, s)
		if s.neighbour != nil {
			s.neighbour.works()
			synctest.Wait()
			s.agent.ExpectNothing()
			s.neighbour.client.ExpectNothing()
		}
	})
}

// withBareServer plays f on a server that nobody has come to.
func withBareServer(t *testing.T, cfg server.Config, f func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, tunneltest.NewNetwork(0), cfg)
		s.t.Cleanup(func() {
			s.later(2 * time.Second) // the peers have ended; what lingers may do so for that long
			wantIdle(t, s.server.Gatherer())
		})
		f(t, s)
	})
}

// newStage starts a server, which ends with the test.
func newStage(t *testing.T, net *tunneltest.Network, cfg server.Config) *stage {
	t.Helper()
	s := &stage{t: t, net: net, ended: make(chan struct{}), began: time.Now(), randoms: 100}
	srv, err := server.New(cfg, server.Deps{
		FrontendListener: net.Listen(front),
		AgentListener:    net.Listen(agents),
		NoPorts:          true,
		Rand:             func() uint64 { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.server = srv
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		if err := srv.Run(ctx); err != nil {
			t.Errorf("the server ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		s.stop()
		<-s.ended
	})
	return s
}

// later lets time pass.
func (s *stage) later(d time.Duration) { later(d) }

func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// connect brings in an old agent, which is a backend if no other has its ID.
func (s *stage) connect(agentID string) *tunneltest.AgentPeer {
	s.t.Helper()
	return s.connectWith(link.AgentHello{AgentID: agentID})
}

func (s *stage) connectWith(hello link.AgentHello) *tunneltest.AgentPeer {
	s.t.Helper()
	a := tunneltest.Connect(s.t, s.net.Dialer("agent "+hello.AgentID), agents, hello)
	synctest.Wait()
	return a
}

// client opens an old client's stream.
func (s *stage) client() *tunneltest.ClientPeer {
	s.t.Helper()
	return tunneltest.Proxy(s.t, s.net.Dialer("client"), front, 0)
}

// random is one that nobody has used.
func (s *stage) random() wire.DialID {
	s.randoms++
	return s.randoms
}

// dial sends a client's DIAL_REQ, sees it at the agent, and returns the random.
func (s *stage) dial(c *tunneltest.ClientPeer, a *tunneltest.AgentPeer) wire.DialID {
	s.t.Helper()
	random := s.random()
	c.Send(dialReq(random))
	expect(s.t, a.Peer, dialReq(random))
	return random
}

// open makes a tunnel between a client and an agent.
func (s *stage) open(c *tunneltest.ClientPeer, a *tunneltest.AgentPeer, id wire.ConnectionID) *tunnel {
	s.t.Helper()
	random := s.dial(c, a)
	a.Send(dialRsp(random, id))
	expect(s.t, c.Peer, dialRsp(random, id))
	return &tunnel{t: s.t, client: c, agent: a, id: id, random: random}
}

// opened is open with a new client.
func (s *stage) opened(id wire.ConnectionID) *tunnel {
	s.t.Helper()
	return s.open(s.client(), s.agent, id)
}

// number is a sum over the server's metrics.
func (s *stage) number(name string, labels ...string) int {
	s.t.Helper()
	return number(s.t, s.server.Gatherer(), name, labels...)
}

// moment is what ends may take that nobody waits for.
const moment = 100 * time.Millisecond

// wantPending and wantTunnels check the gauges, in a moment.
func (s *stage) wantPending(n int) {
	s.t.Helper()
	s.later(moment)
	if got := s.number("konnectivity_network_proxy_server_pending_backend_dials"); got != n {
		s.t.Errorf("%d pending dials, want %d", got, n)
	}
}

func (s *stage) wantTunnels(n int) {
	s.t.Helper()
	s.later(moment)
	if got := s.number("konnectivity_network_proxy_server_established_connections"); got != n {
		s.t.Errorf("%d established connections, want %d", got, n)
	}
}

// packets is how many packets of a type were counted.
func (s *stage) packets(segment, packetType string) int {
	s.t.Helper()
	return s.number("konnectivity_network_proxy_server_stream_packets_total", "segment", segment, "packet_type", packetType)
}

// dialFailures is how many dials were counted as failures for a reason.
func (s *stage) dialFailures(reason string) int {
	s.t.Helper()
	synctest.Wait() // they are counted behind the answer
	return s.number("konnectivity_network_proxy_server_dial_failure_count", "reason", reason)
}

// tunnel is an established tunnel whose two ends the test plays.
type tunnel struct {
	t      *testing.T
	client *tunneltest.ClientPeer
	agent  *tunneltest.AgentPeer
	id     wire.ConnectionID
	random wire.DialID
}

// works checks that data passes both ways.
func (tn *tunnel) works() {
	tn.t.Helper()
	tn.up("up")
	tn.agent.Send(data(tn.id, "down"))
	expect(tn.t, tn.client.Peer, data(tn.id, "down"))
}

// up sends data from the client, and sees it at the agent. An old client that has
// spoken is sent everything at once (the rule of lost first bytes is over).
func (tn *tunnel) up(text string) {
	tn.t.Helper()
	tn.client.Send(data(tn.id, text))
	expect(tn.t, tn.agent.Peer, data(tn.id, text))
}

// closeByClient ends the tunnel in order.
func (tn *tunnel) closeByClient() {
	tn.t.Helper()
	tn.client.Send(closeReq(tn.id))
	expect(tn.t, tn.agent.Peer, closeReq(tn.id))
	tn.agent.Send(closeRsp(tn.id, ""))
	expect(tn.t, tn.client.Peer, closeRsp(tn.id, ""))
	wantEOF(tn.t, tn.client.Peer)
}
