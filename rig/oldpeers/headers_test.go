package oldpeers

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// What old peers say and are told in metadata. COMPAT 1.3.

func TestHeadersOfAgents(t *testing.T) {
	for _, tt := range []struct {
		name    string
		headers metadata.MD
		refused bool
	}{
		{"no agent ID", metadata.Pairs("agentidentifiers", ""), true},
		{"nothing at all", metadata.MD{}, true},
		{"two agent IDs", metadata.Pairs("agentid", "a", "agentid", "a"), true},
		{"two lists of identifiers", metadata.Pairs("agentid", "a", "agentidentifiers", "", "agentidentifiers", ""), true},
		{"identifiers with a bad escape", metadata.Pairs("agentid", "a", "agentidentifiers", "host=%zz"), true},
		{"identifiers with a semicolon", metadata.Pairs("agentid", "a", "agentidentifiers", "host=x;ipv4=1.2.3.4"), true},
		{"an empty agent ID", metadata.Pairs("agentid", "", "agentidentifiers", ""), false},
		{"no identifiers", metadata.Pairs("agentid", "a"), false},
		{"capitals", metadata.Pairs("AGENTID", "a", "agentIdentifiers", "host=x"), false},
		{"identifiers of all kinds", metadata.Pairs("agentid", "a", "agentidentifiers", "host=localhost&ipv4=1.2.3.4&ipv6=::1&ipv6=fd00%3A%3A1&cidr=10.0.0.0/8&default-route=true"), false},
		{"unknown identifiers", metadata.Pairs("agentid", "a", "agentidentifiers", "host=x&new=thing&Host=y"), false},
		{"a token nobody asked for", metadata.Pairs("agentid", "a", "authorization", "Bearer x"), false},
		{"two tokens nobody asked for", metadata.Pairs("agentid", "a", "authorization", "x", "authorization", "y"), false},
		{"headers that nobody knows", metadata.Pairs("agentid", "a", "x-future", "1", "x-future", "2"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withServer(t, func(t *testing.T, s *stage) {
				before := s.number("culvert_server_agents_refused_total", "reason", "metadata")
				stream := s.openRaw(agents, tunneltest.ConnectMethod, tt.headers)
				md := stream.header(t)
				if !tt.refused {
					if len(md.Get("serverid")) != 1 {
						t.Errorf("answered with %v", md)
					}
					return
				}
				// Trailers only, so that nothing says it was let in for a moment.
				if len(md.Get("serverid")) > 0 || len(md.Get("servercount")) > 0 {
					t.Errorf("answered with %v", md)
				}
				if err := stream.status(); status.Code(err) != codes.Unknown {
					t.Errorf("refused with %v, want code Unknown", err)
				}
				if n := s.number("culvert_server_agents_refused_total", "reason", "metadata"); n != before+1 {
					t.Errorf("%d refusals were counted", n-before)
				}
				if n := len(s.server.Status().Links); n != 1 {
					t.Errorf("there are %d links", n)
				}
			})
		})
	}
}

// The headers come at once, before any packet, and with nothing of ours in them;
// then the agent is a backend.
func TestAnswerToOldAgents(t *testing.T) {
	for _, tt := range []struct {
		id    string
		count int
		want  []string
	}{{"s-1", 3, []string{"s-1", "3"}}, {"", 0, []string{"", "0"}}, {"x", -2, []string{"x", "-2"}}} {
		cfg := config()
		cfg.ServerID, cfg.ServerCount = tt.id, tt.count
		withBareServer(t, cfg, func(t *testing.T, s *stage) {
			stream := s.openRaw(agents, tunneltest.ConnectMethod, metadata.Pairs("agentid", "a", "agentidentifiers", ""))
			md := stream.header(t)
			if got := slices.Concat(md.Get("serverid"), md.Get("servercount")); !slices.Equal(got, tt.want) {
				t.Errorf("answered with %v, want %v", got, tt.want)
			}
			if names := slices.Sorted(maps.Keys(md)); !slices.Equal(names, []string{"content-type", "servercount", "serverid"}) {
				t.Errorf("the answer's headers are %v", names)
			}
			synctest.Wait()
			if links := s.server.Status().Links; len(links) != 1 || !links[0].Backend || links[0].Extensions != 0 {
				t.Errorf("the links are %+v", links)
			}
		})
	}
}

// An old client is sent no header before the first packet, and then only what gRPC
// itself sends.
func TestAnswerToOldClients(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		stream := s.openRaw(front, tunneltest.ProxyMethod, metadata.Pairs("user-agent", "whatever", "x-any", "thing"))
		came := make(chan metadata.MD, 1)
		go func() {
			md, _ := stream.Header()
			came <- md
		}()
		random := s.random()
		exchange(t, stream.ClientStream, dialReq(random))
		expect(t, s.agent.Peer, dialReq(random))
		synctest.Wait()
		select {
		case md := <-came:
			t.Errorf("headers came before any packet: %v", md)
		default:
		}
		s.agent.Send(dialRsp(random, 2))
		receive(t, stream.ClientStream, dialRsp(random, 2))
		if names := slices.Collect(maps.Keys(<-came)); !slices.Equal(names, []string{"content-type"}) {
			t.Errorf("the headers are %v", names)
		}
		exchange(t, stream.ClientStream, closeReq(2))
		expect(t, s.agent.Peer, closeReq(2))
		s.agent.Send(closeRsp(2, ""))
		receive(t, stream.ClientStream, closeRsp(2, ""))
		if err := stream.status(); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
		if len(stream.Trailer()) > 0 {
			t.Errorf("the trailers are %v", stream.Trailer())
		}
	})
}

// What old peers put in :authority.
func TestAuthorities(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for i, authority := range []string{
			"%2Fetc%2Fkubernetes%2Fkonnectivity-server%2Fkonnectivity-server.socket", // kube-apiserver over a Unix socket
			"localhost", "konnectivity.example.com", "konnectivity.example.com:8091", "10.0.0.1", "[fd00::1]:8091", "x y",
		} {
			id := wire.ConnectionID(i + 2)
			c := tunneltest.Proxy(t, s.net.Dialer("client"), front, 0, grpc.WithAuthority(authority))
			s.open(c, s.agent, id).closeByClient()
			stream := s.openRaw(agents, tunneltest.ConnectMethod, metadata.Pairs("agentid", authority), grpc.WithAuthority(authority))
			if md := stream.header(t); len(md.Get("serverid")) != 1 {
				t.Errorf("an agent with authority %q is answered with %v", authority, md)
			}
			stream.conn.Close()
			synctest.Wait()
		}
	})
}

// Each listener serves its own service only, and no path with a package in it.
// COMPAT 1.1.
func TestServices(t *testing.T) {
	withServer(t, func(t *testing.T, s *stage) {
		for _, wrong := range [][2]string{
			{front, tunneltest.ConnectMethod}, {agents, tunneltest.ProxyMethod},
			{agents, "/agent.AgentService/Connect"}, {front, "/client.ProxyService/Proxy"},
			{front, "/grpc.health.v1.Health/Watch"}, {agents, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"},
		} {
			stream := s.openRaw(wrong[0], wrong[1], metadata.Pairs("agentid", "a"))
			if err := stream.status(); status.Code(err) != codes.Unimplemented {
				t.Errorf("%s on %s: %v", wrong[1], wrong[0], err)
			}
		}
	})
}

// Identifiers of old agents decide who is asked (7.2, 7.3), whatever else is in
// the list.
func TestIdentifiersOfOldAgents(t *testing.T) {
	cfg := config()
	cfg.Strategies = []backend.Strategy{backend.DestHost, backend.DefaultRoute}
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		identified := func(id, identifiers string) *tunneltest.AgentPeer {
			a := tunneltest.TryConnect(t, s.net.Dialer("agent"), agents, metadata.Pairs("agentid", id, "agentidentifiers", identifiers))
			synctest.Wait()
			return &tunneltest.AgentPeer{Peer: a}
		}
		host := identified("h", "host=node1&future=1&ipv4=10.0.0.1&ipv6=fd00::1")
		route := identified("r", "default-route=true&default-route=false")
		none := identified("n", "")
		for address, want := range map[string]*tunneltest.AgentPeer{
			"node1:80": host, "10.0.0.1:443": host, "[fd00::1]:80": host, "node2:80": route, "[fd00::1]": host, "NODE1.:80": host,
		} {
			c, random := s.client(), s.random()
			req := dialReq(random)
			req.Address = address
			c.Send(req)
			expect(t, want.Peer, req)
			want.Send(dialErr(random, "connection refused"))
			expect(t, c.Peer, dialErr(random, "connection refused"))
			wantEOF(t, c.Peer)
		}
		synctest.Wait()
		none.ExpectNothing()
	})
}

// The refusal's text helps whoever reads the agent's log.
func TestRefusalsSayWhy(t *testing.T) {
	withBareServer(t, config(), func(t *testing.T, s *stage) {
		for header, md := range map[string]metadata.MD{
			"agentid":          metadata.Pairs("agentid", "a", "agentid", "b"),
			"agentidentifiers": metadata.Pairs("agentid", "a", "agentidentifiers", "x", "agentidentifiers", "y"),
		} {
			err := s.openRaw(agents, tunneltest.ConnectMethod, md).status()
			if !strings.Contains(err.Error(), header) {
				t.Errorf("refused with %v, which does not name %s", err, header)
			}
		}
	})
}

// With --disable-extensions a server is as an old one to new peers, too.
func TestServerWithoutExtensions(t *testing.T) {
	cfg := config()
	cfg.DisableExtensions = true
	withBareServer(t, cfg, func(t *testing.T, s *stage) {
		stream := s.openRaw(agents, tunneltest.ConnectMethod, metadata.Pairs("agentid", "a", "knp-extensions", "credit,ready,reason,half-close"))
		if md := stream.header(t); len(md.Get("knp-extensions")) > 0 {
			t.Errorf("answered with %v", md)
		}
		synctest.Wait()
		if links := s.server.Status().Links; len(links) != 1 || !links[0].Backend {
			t.Errorf("the links are %+v", links) // no READY will come
		}
	})
}
