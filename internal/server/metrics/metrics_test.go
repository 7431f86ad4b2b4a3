package metrics

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/culvert-proxy/culvert/internal/golden"
	"github.com/culvert-proxy/culvert/internal/server/agentlink"
	"github.com/culvert-proxy/culvert/internal/server/relay"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// check compares single series, written as the text format writes them.
func check(t *testing.T, m *Metrics, want map[string]float64) {
	t.Helper()
	golden.Values(t, m.Gatherer(), want)
}

// stub is a frontend and an agent's outlet at once, for a relay whose packets
// the test writes itself.
type stub struct {
	mu   sync.Mutex
	sent []wire.Packet
}

func (s *stub) Established(wire.ConnectionID) error { return nil }
func (s *stub) Failed(*wire.DialError)              {}
func (s *stub) Write(p wire.Payload) error          { p.Free(); return nil }
func (s *stub) CloseWrite() error                   { return nil }
func (s *stub) Close(relay.End)                     {}
func (s *stub) Interrupt()                          {}

func (s *stub) Extensions() wire.Extensions    { return 0 }
func (s *stub) Grant(wire.ConnectionID, int64) {}
func (s *stub) MinRTT() time.Duration          { return 0 }
func (s *stub) Kill(error)                     {}
func (s *stub) Send(p wire.Packet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, p)
}
func (s *stub) NewSender(wire.ConnectionID, int64) relay.Sender { return sender{} }

type sender struct{}

func (sender) Write(p wire.Payload) error { p.Free(); return nil }
func (sender) AddCredit(int64) error      { return nil }
func (sender) Finish(wire.Packet)         {}
func (sender) Abort(*wire.Packet)         {}
func (sender) Queued() int64              { return 0 }
func (sender) Progress() int64            { return 0 }

// one is a router with at most one peer.
type one struct{ peer *relay.Peer }

func (o *one) Pick(_ string, skip func(*relay.Peer) bool) (*relay.Peer, bool) {
	return o.peer, o.peer != nil && !skip(o.peer)
}

// TestATunnelsLife follows tunnels of the real relay through the metrics.
func TestATunnelsLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New([]string{"default"})
		route := &one{}
		r := relay.New(relay.Config{BackendDialTimeout: 7 * time.Second}, route, m.Relay())
		req := relay.Request{DialID: 1, Protocol: "tcp", Address: "a:1", Frontend: "grpc"}
		none := r.Open(t.Context(), req, &stub{})
		<-none.Done()
		check(t, m, map[string]float64{
			prefix + "dial_failure_count{reason=no_agent}":                           1,
			ownPrefix + "dial_failures_total{frontend=grpc,reason=no_agent}":         1,
			ownPrefix + "dial_failures_total{frontend=http-connect,reason=no_agent}": 0,
			prefix + "pending_backend_dials":                                         0,
		})

		out := &stub{}
		route.peer = r.Attach(out, relay.PeerInfo{AgentID: "a"})
		tun := r.Open(t.Context(), req, &stub{})
		synctest.Wait()
		check(t, m, map[string]float64{prefix + "pending_backend_dials": 1, prefix + "established_connections": 0})
		route.peer.DialResponse(wire.Packet{Type: wire.DialResponse, DialID: out.sent[0].DialID, ConnectionID: 1})
		synctest.Wait()
		route.peer.Data(wire.Packet{Type: wire.Data, ConnectionID: 1, Payload: wire.CopyPayload([]byte("12345"))})
		if err := tun.Write(wire.CopyPayload([]byte("123"))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		open := map[string]float64{
			prefix + "pending_backend_dials":                  0,
			prefix + "established_connections":                1,
			prefix + "dial_duration_seconds":                  1,
			prefix + "frontend_write_duration_seconds":        1,
			prefix + "connection_duration_seconds":            0,
			ownPrefix + "relayed_bytes_total{direction=up}":   3,
			ownPrefix + "relayed_bytes_total{direction=down}": 5,
		}
		check(t, m, open)
		route.peer.CloseResponse(wire.Packet{Type: wire.CloseResponse, ConnectionID: 1})
		<-tun.Done()
		route.peer.DialResponse(wire.Packet{Type: wire.DialResponse, DialID: 12345, ConnectionID: 9})
		slow := r.Open(t.Context(), req, &stub{})
		<-slow.Done()
		check(t, m, map[string]float64{
			prefix + "established_connections":                                      0,
			prefix + "connection_duration_seconds":                                  1,
			ownPrefix + "tunnels_closed_total{reason=none}":                         1,
			ownPrefix + "relayed_bytes_total{direction=up}":                         3,
			prefix + "dial_failure_count{reason=unrecognized_response}":             1,
			prefix + "dial_failure_count{reason=backend_dial_timeout}":              1,
			ownPrefix + "dial_attempt_failures_total{reason=backend_timeout}":       1,
			ownPrefix + "dial_failures_total{frontend=grpc,reason=backend_timeout}": 1,
		})
	})
}

func TestAttemptsAndRetries(t *testing.T) {
	m := New(nil)
	fail := func(r wire.Reason, final bool) {
		m.Relay().DialAttempt(relay.AttemptFailure{Err: &wire.DialError{Reason: r, Err: errors.New("x")}, Final: final})
	}
	fail(wire.ReasonBackendTimeout, false)
	fail(wire.ReasonRefused, true)
	check(t, m, map[string]float64{
		ownPrefix + "dial_retries_total":                                  1,
		ownPrefix + "dial_attempt_failures_total{reason=backend_timeout}": 1,
		ownPrefix + "dial_attempt_failures_total{reason=refused}":         1,
	})
}

func TestAnAnswerThatWasLost(t *testing.T) {
	m := New(nil)
	m.Relay().AnswerLost(nil)
	check(t, m, map[string]float64{prefix + "dial_failure_count{reason=send_rsp}": 1})
}

func TestFailureLabelOfEveryReason(t *testing.T) {
	want := map[wire.Reason]string{
		wire.ReasonNoAgent: "no_agent", wire.ReasonBackendTimeout: "backend_dial_timeout", wire.ReasonBackendLost: "backend_close",
		wire.ReasonCanceled: "frontend_close", wire.ReasonAborted: "frontend_close", wire.ReasonLimit: "limit", wire.ReasonShutdown: "shutdown",
	}
	for _, r := range wire.Reasons() {
		w := want[r]
		if w == "" {
			w = "error_response"
		}
		if got := failureLabel(r); got != w {
			t.Errorf("%v is %q, want %q", r, got, w)
		}
	}
}

func TestEntries(t *testing.T) {
	m := New(nil)
	a, c, h := m.Agents(), m.Clients(), m.Connect()
	a.StreamOpened(+1)
	a.StreamOpened(+1)
	a.StreamOpened(-1)
	c.StreamOpened(+1)
	h.InFlight(+1)
	a.Refused(agentlink.RefusedAuth)
	a.IdentifierIgnored("ipv4")
	a.IdentifierIgnored("made-up")
	a.DuplicateAgentID("x")
	a.LinkReplaced()
	a.Sent(wire.DialRequest)
	a.Received(wire.Data)
	c.Sent(wire.DialResponse)
	c.Received(wire.DialRequest)
	m.Relay().ReaderBlocked(+1)
	check(t, m, map[string]float64{
		prefix + "grpc_connections{service_method=Connect}":                               1,
		prefix + "grpc_connections{service_method=Proxy}":                                 1,
		prefix + "http_connections":                                                       1,
		prefix + "full_receive_channels{service_method=Connect}":                          1,
		prefix + "full_receive_channels{service_method=Proxy}":                            0,
		prefix + "stream_packets_total{packet_type=DIAL_REQ,segment=to_agent}":            1,
		prefix + "stream_packets_total{packet_type=DATA,segment=from_agent}":              1,
		prefix + "stream_packets_total{packet_type=DIAL_RSP,segment=to_client}":           1,
		prefix + "stream_packets_total{packet_type=DIAL_REQ,segment=from_client}":         1,
		ownPrefix + "agents_refused_total{reason=" + agentlink.RefusedAuth.String() + "}": 1,
		ownPrefix + "agent_identifiers_ignored_total{key=ipv4}":                           1,
		ownPrefix + "agent_identifiers_ignored_total{key=other}":                          1,
		ownPrefix + "duplicate_agent_ids_total":                                           1,
		ownPrefix + "agent_links_replaced_total":                                          1,
	})
}

func TestReadings(t *testing.T) {
	m := New([]string{"destHost", "default", "default"})
	m.Watch(Readings{
		Managers: func() []ManagerSize {
			return []ManagerSize{{Strategy: "destHost", Keys: 2, Backends: 1}, {Strategy: "default", Keys: 3, Backends: 4}}
		},
		Links:       func() LinkCounts { return LinkCounts{Connected: 4, Backend: 3, Draining: 2, Suspect: 1} },
		Budget:      func() (int64, int64) { return 10, 20 },
		ServerCount: func() int { return 5 },
	})
	check(t, m, map[string]float64{
		prefix + "ready_backends{proxy_strategy=destHost}":  2,
		prefix + "ready_backends{proxy_strategy=default}":   3,
		prefix + "ready_backend_connections":                3,
		ownPrefix + "backend_links{proxy_strategy=default}": 4,
		ownPrefix + "agent_links{state=connected}":          4,
		ownPrefix + "agent_links{state=backend}":            3,
		ownPrefix + "agent_links{state=draining}":           2,
		ownPrefix + "agent_links{state=suspect}":            1,
		ownPrefix + "flow_budget_used_bytes":                10,
		ownPrefix + "flow_budget_limit_bytes":               20,
		ownPrefix + "known_servers":                         5,
	})
}

func TestLeases(t *testing.T) {
	m := New(nil)
	l := m.Leases()
	l.Listed(200, "", time.Second)
	l.Listed(403, "Forbidden", time.Second)
	l.Deleted(200, "", time.Second)
	l.Deleted(409, "Conflict", time.Second)
	l.Published(nil)
	l.Published(errors.New("x"))
	l.CountingFailed("lease", errors.New("x"))
	check(t, m, map[string]float64{
		prefix + "lease_list_total{http_status_code=200,reason=}":           1,
		prefix + "lease_list_total{http_status_code=403,reason=Forbidden}":  1,
		prefix + "lease_list_latency_seconds{http_status_code=403}":         1,
		prefix + "lease_delete_total{http_status_code=409,reason=Conflict}": 1,
		prefix + "lease_delete_latency_seconds{http_status_code=200}":       1,
		prefix + "culled_leases_count":                                      1,
		ownPrefix + "lease_publications_total{result=ok}":                   1,
		ownPrefix + "lease_publications_total{result=error}":                1,
		ownPrefix + "server_count_failures_total{source=lease}":             1,
	})
}

// Two servers in one process have nothing in common.
func TestInstancesAreApart(t *testing.T) {
	a, b := New(nil), New(nil)
	a.Connect().InFlight(+1)
	check(t, b, map[string]float64{prefix + "http_connections": 0})
	if problems, err := testutil.GatherAndLint(a.Gatherer()); err != nil {
		t.Errorf("%v %v", problems, err)
	}
}

// moving is a tunnel whose bytes grow while it is watched.
type moving struct {
	mu sync.Mutex
	n  int64
}

func (m *moving) Bytes() (up, down int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n += int64(rand.IntN(3))
	return m.n, m.n
}

// The byte counters never go back while tunnels come and go.
func TestBytesNeverGoBack(t *testing.T) {
	b := newByteCounter()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				tun := &moving{}
				b.add(tun)
				tun.Bytes()
				b.remove(tun)
			}
		})
	}
	last := 0.0
	for range 100 {
		now := sum(t, b)
		if now < last {
			t.Fatalf("the sum went from %v to %v", last, now)
		}
		last = now
	}
	stop()
	wg.Wait()
}

func sum(t *testing.T, b *byteCounter) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(b)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, m := range families[0].GetMetric() {
		total += m.GetCounter().GetValue()
	}
	return total
}
