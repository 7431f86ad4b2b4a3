package agentlink

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/link"
	"github.com/culvert-proxy/culvert/tunnel/tunneltest"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// COMPAT 1.3: what is refused, always before the headers and with code Unknown.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		headers metadata.MD
		auth    error
		text    string
		refusal Refusal
	}{
		{"no agent ID", metadata.Pairs("agentidentifiers", ""), nil, "agentid", RefusedMetadata},
		{"two agent IDs", metadata.Pairs("agentid", "a", "agentid", "b"), nil, "agentid", RefusedMetadata},
		{"two identifier lists", metadata.Pairs("agentid", "a", "agentidentifiers", "", "agentidentifiers", ""), nil, "agentidentifiers", RefusedMetadata},
		{"identifiers with a semicolon", metadata.Pairs("agentid", "a", "agentidentifiers", "host=a;host=b"), nil, "identifier", RefusedMetadata},
		{"identifiers with a bad escape", metadata.Pairs("agentid", "a", "agentidentifiers", "host=%zz"), nil, "identifier", RefusedMetadata},
		{"not authenticated", metadata.Pairs("agentid", "a"), errNo, errNo.Error(), RefusedAuth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, all(), func(t *testing.T, w *world) {
				w.auth = func(Candidate) error { return tt.auth }
				p := tunneltest.TryConnect(t, w.net.Dialer("agent"), "server", tt.headers)
				err := p.ExpectEnd()
				if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want Unknown and %q", err, tt.text)
				}
				w.wantBackends()
				if w.obs.refused[tt.refusal] != 1 || len(w.obs.refused) != 1 {
					t.Errorf("refusals counted: %v", w.obs.refused)
				}
			})
		})
	}
}

func TestRefusalLabels(t *testing.T) {
	for r, want := range map[Refusal]string{RefusedMetadata: "metadata", RefusedAuth: "authentication", RefusedDraining: "draining", 99: "unknown"} {
		if r.String() != want {
			t.Errorf("%d: %q", r, r)
		}
	}
}

// Old agents read two headers, new ones the answer to their list.
func TestHeaders(t *testing.T) {
	some := wire.ExtPing | wire.ExtReason
	for _, tt := range []struct {
		name  string
		cfg   Config
		hello link.AgentHello
		want  wire.Extensions
	}{
		{"old agent", all(), oldAgent("a"), 0},
		{"empty agent ID", all(), oldAgent(""), 0},
		{"new agent", all(), newAgent("a", "i", "0"), wire.AllExtensions},
		{"newer server", all(), link.AgentHello{AgentID: "a", Extensions: some}, some},
		{"newer agent", Config{Extensions: some}, newAgent("a", "i", "0"), some},
		{"extensions disabled", Config{}, newAgent("a", "i", "0"), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, tt.cfg, func(t *testing.T, w *world) {
				w.count = 3
				a := w.connect("agent", tt.hello)
				want := link.ServerHello{ServerID: "s1", ServerCount: 3, Extensions: tt.want}
				if a.Server != want {
					t.Errorf("the server said %+v, want %+v", a.Server, want)
				}
				synctest.Wait()
				a.ExpectNothing()
				a.Close()
				w.wantBackends()
			})
		})
	}
}

func TestHeaderListIsOnlySentToThoseWhoListed(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		p := tunneltest.TryConnect(t, w.net.Dialer("agent"), "server", metadata.Pairs("agentid", "a", wire.HeaderExtensions, "ping", wire.HeaderExtensions, "ping"))
		synctest.Wait()
		p.ExpectNothing() // a repeated key means none, and pings would come otherwise
		if p.Pings() != 0 || w.links.Statuses()[0].Extensions != 0 {
			t.Error("a repeated list counted")
		}
		p.Close()
	})
}

func TestAuthenticatorSeesTheCandidate(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		var got Candidate
		w.auth = func(c Candidate) error { got = c; return nil }
		hello := oldAgent("a")
		hello.Identifiers = "host=x&ipv4=300.1.1.1&default-route=true"
		hello.Authorization = link.BearerToken("secret")
		w.connect("agent", hello)
		if got.AgentID != "a" || !slices.Equal(got.Authorization, []string{"Bearer secret"}) || got.Address == "" ||
			!slices.Equal(got.Identifiers.Hosts, []string{"x"}) || !got.Identifiers.DefaultRoute {
			t.Errorf("candidate %+v", got)
		}
		w.wantBackends("a//")
		if !slices.Equal(w.obs.ignored, []string{"ipv4"}) {
			t.Errorf("ignored %q", w.obs.ignored)
		}
		if ids := w.ids[w.backends[0]]; !slices.Equal(ids.Hosts, []string{"x"}) {
			t.Errorf("the router was told %+v", ids)
		}
	})
}

func TestServerCountIsAnnounced(t *testing.T) {
	bubble(t, all(), func(t *testing.T, w *world) {
		fresh := w.readyAgent("new", newAgent("a", "i", "0"))
		old := w.connect("old", oldAgent("b"))
		w.links.AnnounceCount(5)
		if k := fresh.Expect(wire.ServerCount); k.Count != 5 {
			t.Errorf("count %d", k.Count)
		}
		synctest.Wait()
		old.ExpectNothing()
	})
}
