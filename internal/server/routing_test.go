package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/culvert-proxy/culvert/internal/server/backend"
	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// scene is a server with one agent in another zone.
type scene struct {
	t     *testing.T
	net   *tunneltest.Network
	agent *tunneltest.AgentPeer
	*Server
}

// routed runs f in fake time.
func routed(t *testing.T, f func(s *scene)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		net := tunneltest.NewNetwork(0)
		s, err := New(Config{
			ServerID:    "s1",
			Mode:        ModeGRPC,
			ServerCount: 1,
			Strategies:  []backend.Strategy{backend.DestHost, backend.DestCIDR, backend.Default},
			FailureZone: "east",
			FlowBudget:  1 << 30,
		}, Deps{
			Logger:           klog.Background(),
			FrontendListener: net.Listen("frontend"),
			AgentListener:    net.Listen("agents"),
			NoPorts:          true,
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- s.Run(ctx) }()
		agent := tunneltest.Connect(t, net.Dialer("place of a"), "agents", link.AgentHello{AgentID: "a", Instance: "i", Slot: "0",
			Identifiers: "cidr=10.1.0.0/16&cidr=fd00%3A%3A%2F16&failure-zone=west&exclude-default=true", Extensions: wire.AllExtensions})
		agent.Send(wire.Packet{Type: wire.Ready})
		synctest.Wait()
		f(&scene{t, net, agent, s})
		agent.Close()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func explained(s *Server, query string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.explain(w, httptest.NewRequest(http.MethodGet, "/checkz?"+query, nil))
	return w
}

func TestExplainPage(t *testing.T) {
	routed(t, func(s *scene) {
		for _, c := range []struct {
			address, serving string
			status           int
			says             []string
		}{
			{"10.1.2.3:80", "destCIDR", 200, []string{"served by destCIDR", "agent a, load 0: serves; in failure zone west, while this server prefers east"}},
			{"[fd00::1%eth0]:80", "destCIDR", 200, []string{"looked up as the address fd00::1"}},
			{"10.2.0.1:80", "none", 503, []string{"nobody would serve it", "No agent available", "agent a: destHost: presents no host, ipv4 or ipv6; destCIDR: none of its prefixes (2) covers it; default: opted out"}},
			{"<b>node</b>:80", "none", 503, []string{"looked up as the name <b>node</b>"}},
		} {
			w := explained(s.Server, url.Values{"address": {c.address}}.Encode())
			if w.Code != c.status || w.Header().Get("Culvert-Serving") != c.serving || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Errorf("%s: %d, %v", c.address, w.Code, w.Header())
			}
			for _, want := range c.says {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("%s: %q is missing in\n%s", c.address, want, w.Body.String())
				}
			}
		}
		if w := explained(s.Server, ""); w.Code != http.StatusBadRequest || w.Header().Get("Culvert-Serving") != "" {
			t.Errorf("without an address: %d, %v", w.Code, w.Header())
		}
		s.agent.Send(wire.Packet{Type: wire.Drain})
		synctest.Wait()
		if w := explained(s.Server, "address=10.1.2.3:80"); w.Code != 200 || !strings.Contains(w.Body.String(), "draining: only if nothing else is left") {
			t.Errorf("of a draining agent: %d\n%s", w.Code, w.Body.String())
		}
	})
}

// TestReadinessListsTheManagers, also those without a backend, in their order.
func TestReadinessListsTheManagers(t *testing.T) {
	routed(t, func(s *scene) {
		check := func(want ...string) {
			t.Helper()
			if got := s.readiness(); !slices.Equal(got, want) {
				t.Errorf("readiness says %q, want %q", got, want)
			}
		}
		check("strategy destHost: 0 backends under 0 keys", "strategy destCIDR: 1 backends under 2 keys", "strategy default: 0 backends under 0 keys")
		if err := s.ready(); err != nil {
			t.Error(err)
		}
		s.agent.Close()
		synctest.Wait()
		check("strategy destHost: 0 backends under 0 keys", "strategy destCIDR: 0 backends under 0 keys", "strategy default: 0 backends under 0 keys")
		if s.ready() == nil {
			t.Error("ready without an agent")
		}
	})
}

// TestRoutingWaitsForNoLink: while the server cannot write to one agent, others
// join, serve and leave, and no time passes.
func TestRoutingWaitsForNoLink(t *testing.T) {
	routed(t, func(s *scene) {
		client, id := s.dial(s.agent, "10.1.0.1:80")
		s.net.Shape("agents", "place of a", tunneltest.Shape{Stall: true})
		for range 6 {
			client.SendData(id, make([]byte, 32<<10)) // more than the connection's buffers hold
		}
		synctest.Wait()
		s.agent.ExpectNothing()
		began := time.Now()
		for range 20 {
			other := tunneltest.Connect(s.t, s.net.Dial, "agents", link.AgentHello{AgentID: "b", Instance: "j", Slot: "0",
				Identifiers: "cidr=10.2.0.0%2F16", Extensions: wire.AllExtensions})
			other.Send(wire.Packet{Type: wire.Ready})
			synctest.Wait()
			s.dial(other, "10.2.0.1:80")
			other.Close()
			synctest.Wait()
			if n := s.router.Len(); n != 1 {
				s.t.Fatalf("%d backends, want only the stalled one", n)
			}
		}
		if took := time.Since(began); took > 0 {
			s.t.Errorf("it took %v", took)
		}
		s.net.Shape("agents", "place of a", tunneltest.Shape{})
	})
}

// dial opens a tunnel that agent must serve.
func (s *scene) dial(agent *tunneltest.AgentPeer, address string) (*tunneltest.ClientPeer, wire.ConnectionID) {
	s.t.Helper()
	client := tunneltest.Proxy(s.t, s.net.Dial, "frontend", link.ClientExtensions)
	client.Send(wire.Packet{Type: wire.DialRequest, DialID: 5, Protocol: "tcp", Address: address})
	dial := agent.ExpectDial(address)
	agent.Send(wire.Packet{Type: wire.DialResponse, DialID: dial.DialID, ConnectionID: 1, Window: 1 << 20})
	client.ExpectOn(wire.DialResponse, 1)
	return client, 1
}
