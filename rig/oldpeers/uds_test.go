package oldpeers

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
)

// What only a real Unix socket can show: how a client leaves, and what one read
// brings. In real time, so nothing here depends on how much of it passes.

// onSocket plays f on a server behind a Unix socket, with an old agent.
func onSocket(t *testing.T, mode server.Mode, f func(t *testing.T, s *stage, path string)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "konnectivity.socket")
	cfg := config()
	cfg.Mode, cfg.UDSName = mode, path
	network := tunneltest.NewNetwork(0)
	s := &stage{t: t, net: network, ended: make(chan struct{}), randoms: 100}
	srv, err := server.New(cfg, server.Deps{AgentListener: network.Listen(agents), NoPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	s.server = srv
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		_ = srv.Run(ctx)
	}()
	t.Cleanup(func() {
		s.stop()
		<-s.ended
	})
	s.agent = tunneltest.Connect(t, network.Dialer("agent a"), agents, link.AgentHello{AgentID: "a"})
	settle(t, "a backend", func() bool {
		links := srv.Status().Links
		return len(links) == 1 && links[0].Backend
	})
	f(t, s, path)
	settle(t, "the end of all tunnels", func() bool {
		return s.number("konnectivity_network_proxy_server_established_connections") == 0 &&
			s.number("konnectivity_network_proxy_server_pending_backend_dials") == 0
	})
}

// settle waits until ok.
func settle(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(tunneltest.Patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no %s within %v", what, tunneltest.Patience)
		}
	}
}

// callUnix is a CONNECT client's connection that has sent its head.
func (s *stage) callUnix(path string) *caller {
	s.t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		s.t.Fatal(err)
	}
	return newCaller(s.t, conn, s.agent, kubeAPIServer(endpointAddress))
}

// kube-apiserver reads once and fails if anything follows the head before it has
// spoken (10.2), also when the agent sends the endpoint's first words and its end
// right behind the answer.
func TestSocketAnswerIsAlone(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		for range 50 {
			c := s.callUnix(path)
			random := c.asked(endpointAddress)
			s.agent.Send(dialRsp(random, 2), data(2, "banner"), closeRsp(2, ""))
			c.once(established)
			c.reads("banner")
			c.readsEOF()
			c.Close()
		}
		settle(t, "end of the sockets", func() bool {
			return s.number("konnectivity_network_proxy_server_http_connections") == 0
		})
		s.agent.ExpectNothing()
	})
}

func TestSocketNoAgent(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		s.agent.Close()
		settle(t, "loss of the agent", func() bool { return len(s.server.Status().Links) == 0 })
		want := answer{503, "No agent available", "currently no tunnels available: No agent available"}
		if a := s.callUnix(path).fails(); a != want {
			t.Errorf("answered %+v", a)
		}
	})
}

// A client that leaves during the dial is noticed; in the reference nobody looks,
// and an agent's connection leaks (9.2).
func TestSocketClientLeavesDuringTheDial(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		c := s.callUnix(path)
		random := c.asked(endpointAddress)
		c.Close()
		expect(t, s.agent.Peer, dialCls(random))
		s.agent.Send(dialRsp(random, 2)) // an old agent has not looked at it
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(data(2, "x"), closeRsp(2, ""))
	})
}

// Both at once: it leaves when the answer is under way.
func TestSocketClientLeavesWithTheAnswer(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		for range 20 {
			c := s.callUnix(path)
			random := c.asked(endpointAddress)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				c.Close()
			}()
			s.agent.Send(dialRsp(random, 2))
			<-gone
			k := s.agent.Next()
			if line(k) == line(dialCls(random)) {
				k = s.agent.Next()
			}
			if line(k) != line(closeReq(2)) {
				t.Fatalf("the agent got %s", line(k))
			}
			s.agent.Send(closeRsp(2, ""))
		}
	})
}

// A half-close during the dial is none: the client waits for its answer.
func TestSocketHalfCloseDuringTheDial(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		c := s.callUnix(path)
		random := c.asked(endpointAddress)
		c.write("request")
		c.closeWrite()
		s.agent.Send(dialRsp(random, 2))
		expect(t, s.agent.Peer, data(2, "request"))
		c.once(established)
		s.agent.Send(data(2, "answer"), closeRsp(2, ""))
		c.reads("answer")
		c.readsEOF()
	})
}

// A client that hangs up: CLOSE_REQ behind its last byte, once.
func TestSocketClientHangsUp(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		c := s.callUnix(path)
		c.establish(2)
		c.works()
		text := strings.Repeat("0123456789abcdef", 8<<10) // 128 KiB
		c.write(text)
		c.Close()
		s.agent.ExpectData(2, []byte(text))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(data(2, "nobody reads it"), closeRsp(2, ""))
		settle(t, "end of the tunnel", func() bool {
			return s.number("konnectivity_network_proxy_server_http_connections") == 0
		})
		s.agent.ExpectNothing()
	})
}

func TestSocketAgentLost(t *testing.T) {
	onSocket(t, server.ModeHTTPConnect, func(t *testing.T, s *stage, path string) {
		c := s.callUnix(path)
		c.establish(2)
		c.works()
		dialing := s.callUnix(path)
		dialing.asked(endpointAddress)
		s.agent.Close()
		c.readsEOF()
		if a := dialing.fails(); a.status != 502 || !strings.HasPrefix(a.body, "Backend context error: ") {
			t.Errorf("answered %+v", a)
		}
	})
}

// gRPC as kube-apiserver speaks it: cleartext over the socket, whose path it gives
// as the authority, percent-encoded; one connection and one stream for each dial.
func TestSocketGRPC(t *testing.T) {
	onSocket(t, server.ModeGRPC, func(t *testing.T, s *stage, path string) {
		dial := func(context.Context, string) (net.Conn, error) { return net.Dial("unix", path) }
		authority := strings.ReplaceAll(path, "/", "%2F")
		for range 5 {
			c := tunneltest.Proxy(t, dial, "unused", 0, grpc.WithAuthority(authority))
			tn := s.open(c, s.agent, 2)
			tn.works()
			tn.closeByClient()
			c.Close()
		}
	})
}
