package metrics

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/culvert-proxy/culvert/internal/agent/endpoint"
	"github.com/culvert-proxy/culvert/internal/golden"
	"github.com/culvert-proxy/culvert/tunnel/wire"
)

// check compares single series, written as the text format writes them.
func check(t *testing.T, m *Metrics, want map[string]float64) {
	t.Helper()
	golden.Values(t, m.Gatherer(), want)
}

func TestStreams(t *testing.T) {
	m := New()
	s := m.Streams()
	s.Sent(wire.DialResponse)
	s.Received(wire.DialRequest)
	s.SendFailed(wire.Data, status.Error(codes.Unavailable, "x"))
	s.SendFailed(wire.Data, io.EOF)
	s.ReceiveFailed(status.Error(codes.Canceled, "x"))
	s.ReceiveFailed(errors.New("x"))
	s.ReceiveFailed(io.EOF)
	check(t, m, map[string]float64{
		prefix + "stream_packets_total{packet_type=DIAL_RSP,segment=from_agent}":             1,
		prefix + "stream_packets_total{packet_type=DIAL_REQ,segment=to_agent}":               1,
		prefix + "stream_errors_total{code=Unavailable,packet_type=DATA,segment=from_agent}": 1,
		prefix + "stream_errors_total{code=Canceled,packet_type=Unknown,segment=to_agent}":   1,
		prefix + "server_connection_failure_count{direction=to_server}":                      1,
		prefix + "server_connection_failure_count{direction=from_server}":                    2,
	})
}

func TestFleet(t *testing.T) {
	m := New()
	f := m.Fleet()
	f.Connected(3)
	f.Connected(2)
	f.Known(4)
	f.AttemptConnected()
	f.AttemptDuplicate()
	f.AttemptFailed()
	check(t, m, map[string]float64{
		prefix + "open_server_connections":                     2,
		prefix + "known_server_count":                          4,
		ownPrefix + "connect_attempts_total{result=connected}": 1,
		ownPrefix + "connect_attempts_total{result=duplicate}": 1,
		ownPrefix + "connect_attempts_total{result=failed}":    1,
	})
}

func TestEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		e := m.Endpoints()
		fail := func(r wire.Reason, timeout bool) {
			e.DialFailed(endpoint.Dial{Timeout: timeout}, &wire.DialError{Reason: r, Err: errors.New("x")})
		}
		fail(wire.ReasonDialTimeout, true)
		fail(wire.ReasonRefused, false)
		fail(wire.ReasonCanceled, false)
		e.DialSucceeded(endpoint.Dial{Took: time.Second})
		first := endpoint.Info{Since: time.Now()}
		e.Opened(first)
		e.Opened(endpoint.Info{Since: time.Now()})
		e.ReaderBlocked(+1)
		first.Up, first.Down = 10, 20
		<-time.After(time.Minute)
		e.Closed(first, endpoint.End{})
		check(t, m, map[string]float64{
			prefix + "dial_duration_seconds":                       1,
			prefix + "endpoint_dial_failure_total{reason=timeout}": 1,
			prefix + "endpoint_dial_failure_total{reason=unknown}": 1,
			prefix + "open_endpoint_connections":                   1,
			ownPrefix + "dial_failures_total{reason=canceled}":     1,
			ownPrefix + "dial_failures_total{reason=refused}":      1,
			ownPrefix + "connections_closed_total{reason=none}":    1,
			ownPrefix + "connection_duration_seconds":              1,
			ownPrefix + "blocked_readers":                          1,
			ownPrefix + "relayed_bytes_total{direction=up}":        10,
			ownPrefix + "relayed_bytes_total{direction=down}":      20,
		})
	})
}

func TestReadings(t *testing.T) {
	m := New()
	open := []endpoint.Info{{Up: 5, Down: 6}, {Up: 1}}
	m.Watch(Readings{
		Connections: func() []endpoint.Info { return open },
		Budget:      func() (int64, int64) { return 1, 2 },
	})
	want := map[string]float64{
		ownPrefix + "relayed_bytes_total{direction=up}":   6,
		ownPrefix + "relayed_bytes_total{direction=down}": 6,
		ownPrefix + "flow_budget_used_bytes":              1,
		ownPrefix + "flow_budget_limit_bytes":             2,
	}
	check(t, m, want)
	open = nil // gone from the table, and not told yet: the counter stays
	check(t, m, want)
	m.Endpoints().Closed(endpoint.Info{Up: 7, Down: 6, Since: time.Now()}, endpoint.End{})
	want[ownPrefix+"relayed_bytes_total{direction=up}"] = 7
	check(t, m, want)
}

func TestLeases(t *testing.T) {
	m := New()
	l := m.Leases()
	l.Listed(200, "", time.Second)
	l.Listed(403, "Forbidden", time.Second)
	l.Watched(200, "")
	l.CountingFailed("lease", errors.New("x"))
	check(t, m, map[string]float64{
		prefix + "lease_lists_total{http_response_code=200,reason=}":          1,
		prefix + "lease_lists_total{http_response_code=403,reason=Forbidden}": 1,
		prefix + "lease_list_latency_seconds{http_response_code=200}":         1,
		prefix + "lease_watches_total{http_response_code=200,reason=}":        1,
		ownPrefix + "server_count_failures_total{source=lease}":               1,
	})
}

// Two agents in one process have nothing in common.
func TestInstancesAreApart(t *testing.T) {
	a, b := New(), New()
	a.Fleet().Connected(1)
	check(t, b, map[string]float64{prefix + "open_server_connections": 0})
}
