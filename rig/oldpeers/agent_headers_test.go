package oldpeers

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// What our agent says to an old server, and what it makes of the answer. COMPAT
// 1.3, 6.2, 6.3.

func TestHeadersOfOurAgent(t *testing.T) {
	ours := []string{"knp-extensions", "knp-instance", "knp-link"} // which old servers do not look at
	for _, tt := range []struct {
		identifiers string
		disabled    bool
		want        []string
	}{
		{"", false, append([]string{"agentid", "agentidentifiers"}, ours...)},
		{"host=x&ipv4=1.2.3.4", false, append([]string{"agentid", "agentidentifiers"}, ours...)},
		{"host=a%2Eb", true, []string{"agentid", "agentidentifiers"}}, // as an old agent
	} {
		cfg := agentConfig()
		cfg.Identifiers, cfg.DisableExtensions = tt.identifiers, tt.disabled
		withLonelyAgent(t, cfg, func(t *testing.T, p *place) {
			p.accept()
			md := p.server.Headers
			var names []string
			for name, values := range md {
				if len(values) != 1 {
					t.Errorf("%s has the values %q", name, values)
				}
				switch name {
				case ":authority", "content-type", "user-agent", "grpc-accept-encoding": // gRPC's own
				default:
					names = append(names, name)
				}
			}
			slices.Sort(names)
			if !slices.Equal(names, tt.want) {
				t.Errorf("the headers are %v, want %v", names, tt.want)
			}
			// However they are escaped, an old server must read the same pairs.
			said, err := url.ParseQuery(md.Get("agentidentifiers")[0])
			if want, _ := url.ParseQuery(tt.identifiers); err != nil || !reflect.DeepEqual(said, want) || md.Get("agentid")[0] != "a" {
				t.Errorf("the agent says %q, %q", md.Get("agentid"), md.Get("agentidentifiers"))
			}
			if got := md.Get(":authority"); !slices.Equal(got, []string{"server"}) {
				t.Errorf("the authority is %q", got)
			}
			// Nothing follows the headers: no READY, no PING.
			later(time.Hour)
			p.server.ExpectNothing()
			if p.server.Pings() != 0 {
				t.Errorf("%d pings", p.server.Pings())
			}
		})
	}
}

// An answer that cannot be right costs the attempt, and the next one follows; in the
// reference, too.
func TestAnswersThatCannotBeRight(t *testing.T) {
	for name, md := range map[string]metadata.MD{
		"nothing":             {},
		"no ID":               metadata.Pairs("servercount", "1"),
		"two IDs":             metadata.Pairs("serverid", "a", "serverid", "a", "servercount", "1"),
		"no count":            metadata.Pairs("serverid", "a"),
		"two counts":          metadata.Pairs("serverid", "a", "servercount", "1", "servercount", "1"),
		"a count in words":    metadata.Pairs("serverid", "a", "servercount", "one"),
		"a count that is not": metadata.Pairs("serverid", "a", "servercount", ""),
	} {
		t.Run(name, func(t *testing.T) {
			withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
				wrong := p.servers.AcceptSilently()
				wrong.SendHeaders(md)
				if err := wrong.ExpectEnd(); status.Code(err) != codes.Canceled {
					t.Errorf("the stream ended with %v", err)
				}
				if links := p.agent.Status().Fleet.Links; len(links) != 0 {
					t.Errorf("the links are %+v", links)
				}
				start := time.Now()
				p.accept()
				if d := time.Since(start); d > 3*time.Second {
					t.Errorf("the next attempt came after %v", d)
				}
				p.echoes(p.opened(p.listen(endpointAddress), 5, 1), 1)
			})
		})
	}
}

// Zero is "unknown", so one server is enough; so is a negative number, which makes
// the reference's agent probe for ever.
func TestCountsOfOldServers(t *testing.T) {
	for count, more := range map[string]bool{"1": false, "0": false, "-1": false, "+1": false, "2": true} {
		t.Run(count, func(t *testing.T) {
			withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
				p.server = p.servers.AcceptSilently()
				p.server.SendHeaders(metadata.Pairs("serverid", "", "servercount", count)) // an empty ID is one
				later(5 * time.Second)
				if got := p.servers.Waiting() > 0; got != more {
					t.Errorf("with a count of %s the agent looks for more: %v", count, got)
				}
				p.echoes(p.opened(p.listen(endpointAddress), 5, 1), 1)
			})
		})
	}
}

// Headers that nobody knows, ours among them, are a future server's.
func TestUnknownHeadersOfServers(t *testing.T) {
	withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
		p.server = p.servers.AcceptSilently()
		p.server.SendHeaders(metadata.Pairs("serverid", "s", "servercount", "1", "x-future", "a", "x-future", "b", "knp-extensions", "future"))
		synctest.Wait()
		p.server.ExpectNothing()
		p.echoes(p.opened(p.listen(endpointAddress), 5, 1), 1)
	})
}

// A server that sends no headers at all: the reference's agent hangs for ever (9.2).
func TestServerThatSendsNoHeaders(t *testing.T) {
	withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
		silent := p.servers.AcceptSilently()
		start := time.Now()
		_ = silent.ExpectEnd()
		if d := time.Since(start); d > 10*time.Second {
			t.Errorf("given up after %v", d)
		}
		p.accept()
		p.echoes(p.opened(p.listen(endpointAddress), 5, 1), 1)
	})
}

// A refusal before the headers: trailers only, code Unknown.
func TestServerThatRefuses(t *testing.T) {
	withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
		p.servers.AcceptSilently().End(status.Error(codes.Unknown, "missing or incorrect agent ID"))
		p.accept()
		p.echoes(p.opened(p.listen(endpointAddress), 5, 1), 1)
		if n := p.number("culvert_agent_connect_attempts_total", "result", "failed"); n != 1 {
			t.Errorf("%d failures were counted", n)
		}
	})
}

// The server says that there are three, and is the only one that is found: its
// duplicates are dropped without a packet, and the link that works is kept (6.2).
func TestDuplicatesOfOneServer(t *testing.T) {
	withLonelyAgent(t, agentConfig(), func(t *testing.T, p *place) {
		hello := metadata.Pairs("serverid", "s", "servercount", "3")
		p.server = p.servers.AcceptSilently()
		p.server.SendHeaders(hello)
		conn := p.opened(p.listen(endpointAddress), 5, 1)
		for range 4 {
			dup := p.servers.AcceptSilently()
			dup.SendHeaders(hello)
			if err := dup.ExpectEnd(); status.Code(err) != codes.Canceled { // which fails on any packet
				t.Errorf("the duplicate ended with %v", err)
			}
			p.echoes(conn, 1)
		}
		if n := len(p.agent.Status().Fleet.Links); n != 1 {
			t.Errorf("%d links", n)
		}
	})
}

// An agent behind an old server pings no faster than that allows: no GOAWAY
// "too_many_pings" in an hour (7.6).
func TestAgentDoesNotPingTooOften(t *testing.T) {
	withAgent(t, func(t *testing.T, p *place) {
		conn := p.opened(p.listen(endpointAddress), 5, 1)
		later(time.Hour)
		p.echoes(conn, 1)
		if n := p.number("culvert_agent_connect_attempts_total", "result", "connected"); n != 1 {
			t.Errorf("the agent has connected %d times", n)
		}
	})
}

// The same names as on the wire, so that a change of ours is noticed here.
func TestNamesOfHeaders(t *testing.T) {
	got := slices.Sorted(maps.Keys(map[string]bool{
		wire.HeaderAgentID: true, wire.HeaderAgentIdentifiers: true, wire.HeaderServerID: true, wire.HeaderServerCount: true, wire.HeaderAuthorization: true,
	}))
	if want := []string{"agentid", "agentidentifiers", "authorization", "servercount", "serverid"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
