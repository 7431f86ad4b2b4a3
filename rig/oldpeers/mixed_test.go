package oldpeers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/culvert-proxy/culvert/internal/server"
	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/client"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// Mixed rigs: a new server with old and new agents at once, and a new agent with old
// and new servers at once.

// dialler is a way in to a server.
type dialler func(address string) (net.Conn, error)

// grpcWay is our client, with or without extensions.
func (s *stage) grpcWay(old bool) dialler {
	return func(address string) (net.Conn, error) {
		tun, err := client.NewSingleUse(context.Background(), "passthrough:///"+front, client.Options{DisableExtensions: old},
			grpc.WithContextDialer(s.net.Dialer("client")), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		s.t.Cleanup(func() { tun.Close() })
		return tun.DialContext(context.Background(), "tcp", address)
	}
}

// connectWay is an HTTP CONNECT client.
func (s *stage) connectWay() dialler {
	return func(address string) (net.Conn, error) {
		conn, err := s.net.Dialer("client")(context.Background(), front)
		if err != nil {
			return nil, err
		}
		s.t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, kubeAPIServer(address)); err != nil {
			return nil, err
		}
		head := make([]byte, len(established))
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != established {
			return nil, fmt.Errorf("answered %q, %w", head, err)
		}
		return conn, nil
	}
}

// addAgent brings a whole agent of ours to a server of ours.
func (s *stage) addAgent(id, identifiers string) *place {
	s.t.Helper()
	p := &place{t: s.t, net: s.net, began: time.Now()}
	cfg := agentConfig()
	cfg.AgentID, cfg.Identifiers, cfg.ServerHosts, cfg.LameDuck = id, identifiers, []string{young}, 0
	p.startAgent(cfg)
	synctest.Wait()
	return p
}

// withMixedAgents plays f on a server with an old and a new agent, in both modes.
func withMixedAgents(t *testing.T, strategies []backend.Strategy, f func(t *testing.T, s *stage, ways map[string]dialler)) {
	t.Helper()
	for _, mode := range []server.Mode{server.ModeGRPC, server.ModeHTTPConnect} {
		t.Run(string(mode), func(t *testing.T) {
			cfg := config()
			cfg.Mode, cfg.Strategies = mode, strategies
			withBareServer(t, cfg, func(t *testing.T, s *stage) {
				ways := map[string]dialler{"CONNECT": s.connectWay()}
				if mode == server.ModeGRPC {
					ways = map[string]dialler{"old client": s.grpcWay(true), "new client": s.grpcWay(false)}
				}
				f(t, s, ways)
			})
		})
	}
}

// Many tunnels at once share the two agents; then the old one is lost, and only what
// it served ends.
func TestOldAndNewAgentsAtOnce(t *testing.T) {
	withMixedAgents(t, []backend.Strategy{backend.Default}, func(t *testing.T, s *stage, ways map[string]dialler) {
		old := s.robot("old", "")
		s.addAgent("new", "").echo(endpointAddress)
		const each = 12
		type result struct {
			conn net.Conn
			err  error
		}
		results := make(chan result)
		n := 0
		for _, way := range ways {
			for range each {
				n++
				seed := uint64(n)
				go func() {
					conn, err := way(endpointAddress)
					if err == nil {
						err = echoed(conn, 100<<10, seed)
					}
					results <- result{conn, err}
				}()
			}
		}
		var conns []net.Conn
		for range n {
			r := <-results
			if r.err != nil {
				t.Fatal(r.err)
			}
			conns = append(conns, r.conn)
		}
		wantFaultless(t, old)
		served, _ := old.state()
		if served < 2 || served > n-2 { // pending dials weigh more, so it need not be half
			t.Errorf("the old agent serves %d of %d", served, n)
		}
		old.kill()
		s.later(time.Second)
		s.wantTunnels(n - served)
		ended := 0
		for i, conn := range conns {
			if echoed(conn, 1000, uint64(i)) != nil {
				ended++
			}
		}
		if ended != served {
			t.Errorf("%d tunnels ended with an agent that served %d", ended, served)
		}
		for _, way := range ways { // and new ones go to the agent that is left
			conn, err := way(endpointAddress)
			if err != nil || echoed(conn, 1000, 1) != nil {
				t.Errorf("a new dial: %v", err)
			}
		}
	})
}

// What one kind of peer can do does not depend on who else is there.
func TestHalfCloseWithOldAndNewAgents(t *testing.T) {
	withMixedAgents(t, []backend.Strategy{backend.DestHost}, func(t *testing.T, s *stage, ways map[string]dialler) {
		old := s.connectWith(link.AgentHello{AgentID: "old", Identifiers: "host=old"})
		s.addAgent("new", "host=new").echo("new:80")
		s.later(time.Second)
		for name, way := range ways {
			conn, err := way("new:80")
			if err != nil {
				t.Fatal(err)
			}
			if name == "old client" {
				if err := echoed(conn, 1000, 1); err != nil {
					t.Error(err)
				}
			} else { // the endpoint sees the end, and answers behind it
				want := string(pattern(1000, 1))
				_, _ = io.WriteString(conn, want)
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
				if got, err := io.ReadAll(conn); err != nil || string(got) != want {
					t.Errorf("%s: read %d bytes, %v", name, len(got), err)
				}
			}
			conn.Close()

			// Through the old agent: it is told of nothing but data and the close.
			dialled := make(chan net.Conn, 1)
			go func() {
				conn, _ := way("old:80")
				dialled <- conn
			}()
			k := old.ExpectDial("old:80")
			if k.Window != 0 || k.CanHalfClose {
				t.Errorf("%s: the old agent gets %s", name, line(k))
			}
			old.Send(dialRsp(k.DialID, 1))
			conn = <-dialled
			_, _ = io.WriteString(conn, "up")
			expect(t, old.Peer, data(1, "up"))
			if name != "old client" {
				_ = conn.(interface{ CloseWrite() error }).CloseWrite()
			}
			synctest.Wait()
			old.ExpectNothing()
			old.Send(data(1, "down"), closeRsp(1, ""))
			if got, err := io.ReadAll(conn); err != nil || string(got) != "down" {
				t.Errorf("%s: read %q, %v", name, got, err)
			}
			conn.Close()
			s.later(time.Second)
			old.ExpectNothing()
		}
	})
}

// A dial that one kind of agent cannot answer goes to the other kind.
func TestRetriesBetweenOldAndNewAgents(t *testing.T) {
	withMixedAgents(t, []backend.Strategy{backend.Default}, func(t *testing.T, s *stage, ways map[string]dialler) {
		old := s.connect("old")
		p := s.addAgent("new", "")
		s.later(time.Second)
		p.echo(endpointAddress)
		for name, way := range ways {
			for _, failure := range []wire.Packet{dialErr(0, "dial tcp 10.0.0.1:80: connect: no route to host"), dialCls(0), {}} {
				dialled := make(chan error, 1)
				go func() {
					conn, err := way(endpointAddress)
					if err == nil {
						err = errors.Join(echoed(conn, 1000, 3), conn.Close())
					}
					dialled <- err
				}()
				k := old.ExpectDial(endpointAddress) // it has come first
				if failure.DialID = k.DialID; failure.Type != wire.DialRequest {
					old.Send(failure)
				} else { // silence, which is a failure in the end
					expect(t, old.Peer, dialCls(k.DialID))
				}
				if err := <-dialled; err != nil {
					t.Errorf("%s: %v", name, err)
				}
				s.later(2 * time.Second)
				old.Send(dialErr(1, "heard")) // no longer suspect
				synctest.Wait()
				old.ExpectNothing()
			}
		}
	})
}

// withMixedServers plays f with an agent that is connected to an old server and to
// one of ours, which say that there are two.
func withMixedServers(t *testing.T, f func(t *testing.T, p *place, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := tunneltest.NewNetwork(0)
		cfg := config()
		cfg.ServerID, cfg.ServerCount = "new", 2
		s := newStage(t, network, cfg)
		conf := agentConfig()
		conf.ServerHosts = []string{"server", young}
		p := newPlace(t, network, conf)
		p.acceptSecond()
		p.wantLinks("new", "old")
		f(t, p, s)
	})
}

// acceptSecond is accept by an old server that knows of two.
func (p *place) acceptSecond() {
	p.t.Helper()
	p.server = p.servers.AcceptSilently()
	p.server.SendHeaders(metadata.Pairs("serverid", "old", "servercount", "2"))
	later(3 * time.Second)
}

// wantLinks checks whom the agent is connected to; only ours have extensions.
func (p *place) wantLinks(ids ...string) {
	p.t.Helper()
	links := p.agent.Status().Fleet.Links
	var got []string
	for _, l := range links {
		got = append(got, l.ServerID)
		if (l.Extensions != 0) != (l.ServerID == "new") {
			p.t.Errorf("the link to %s has extensions %v", l.ServerID, l.Extensions)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		p.t.Fatalf("the agent is connected to %v, want %v", got, ids)
	}
}

// Connections of both servers, with the same numbers, at once; then one server is
// lost and comes back, and the other does not notice.
func TestOldAndNewServersAtOnce(t *testing.T) {
	withMixedServers(t, func(t *testing.T, p *place, s *stage) {
		p.echo("echo:80")
		node := p.listen(endpointAddress)
		viaOld := p.opened(node, 5, 1)
		viaNew, err := s.grpcWay(false)("echo:80") // connection 1 as well
		if err != nil {
			t.Fatal(err)
		}
		p.echoes(viaOld, 1)
		if err := echoed(viaNew, 2<<20, 1); err != nil {
			t.Error(err)
		}
		p.wantConnections(2)

		p.server.Close()
		later(time.Second)
		if err := echoed(viaNew, 1<<20, 2); err != nil {
			t.Errorf("after the loss of the old server: %v", err)
		}
		p.wantConnections(1)
		p.acceptSecond()
		p.wantLinks("new", "old")
		again := p.opened(node, 6, 1)
		p.echoes(again, 1)

		s.stop()
		<-s.ended
		later(time.Second)
		p.echoes(again, 1)
		p.wantLinks("old")
		p.server.ExpectNothing()
	})
}

// An endpoint that is stuck behind the old server holds up that link at most, not
// the other one.
func TestStuckEndpointBehindTheOldServer(t *testing.T) {
	withMixedServers(t, func(t *testing.T, p *place, s *stage) {
		p.echo("echo:80")
		p.opened(p.listen(endpointAddress), 5, 1) // reads nothing
		viaNew, err := s.grpcWay(false)("echo:80")
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			p.server.SendData(1, pattern(4<<20, 1))
		}()
		start := time.Now()
		for range 5 {
			later(time.Second)
			if err := echoed(viaNew, 100<<10, 2); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d > 6*time.Second {
			t.Errorf("five exchanges beside it took %v", d)
		}
		if n := p.number("culvert_agent_blocked_readers"); n != 1 {
			t.Errorf("%d readers are blocked: nothing was stuck", n)
		}
		<-sent
		p.server.ExpectOn(wire.CloseResponse, 1)
		p.server.Skip(wire.CloseResponse)
	})
}

// The agent leaves: both servers are told, the old one in its own words.
func TestLeavingOldAndNewServers(t *testing.T) {
	withMixedServers(t, func(t *testing.T, p *place, s *stage) {
		conn := p.opened(p.listen(endpointAddress), 5, 1)
		p.stop()
		expect(t, p.server.Peer, drain())
		synctest.Wait()
		if links := s.server.Status().Links; len(links) != 1 || !links[0].Draining {
			t.Errorf("the new server's links are %+v", links)
		}
		later(10 * time.Second)
		p.echoes(conn, 1)
		p.server.Send(closeReq(1))
		expect(t, p.server.Peer, closeRsp(1, ""))
		conn.Close()
		<-p.ended
		_ = p.server.ExpectEnd()
		synctest.Wait()
		if links := s.server.Status().Links; len(links) != 0 {
			t.Errorf("the new server's links are %+v", links)
		}
	})
}

// With a count of two and both connected, the agent looks for no one; old duplicates
// would be tried every second otherwise.
func TestAgentIsContentWithBothServers(t *testing.T) {
	withMixedServers(t, func(t *testing.T, p *place, s *stage) {
		before := p.number("culvert_agent_connect_attempts_total")
		later(time.Minute)
		if n := p.number("culvert_agent_connect_attempts_total") - before; n != 0 {
			t.Errorf("%d attempts", n)
		}
		if n := p.servers.Waiting(); n != 0 {
			t.Errorf("%d streams wait at the old server", n)
		}
	})
}
